import CPlimsollSupervisor
import Glibc

/// The server side of sd_notify(3): one datagram socket for all units, whose senders the kernel names.
///
/// Poll `file` and call `receive()` until it returns `nil`. One thread at a time may use it.
public final class NotifySocket {
    /// Who sent a message, by the kernel's word.
    public struct Sender: Sendable, Hashable {
        /// The process that sent it, not the main one of its unit; 0 if it is in another process namespace.
        public var process: Int32
        public var user: UInt32
    }

    /// A message that was taken.
    public struct Notice: Sendable {
        public var sender: Sender
        public var message: NotifyMessage
        /// What is to be kept for the service (`FDSTORE=1`). Whoever lets go of one closes it. What comes without `FDSTORE=1` is closed at once, which
        /// is also what `BARRIER=1` waits for.
        public var descriptors: [KeptDescriptor]
    }

    /// What was received and what was not taken, since the beginning.
    public struct Counters: Sendable, Hashable {
        public var taken = 0
        /// Longer than 4 KiB, or with more than 16 descriptors.
        public var oversize = 0
        /// Without a sender.
        public var anonymous = 0
        /// Nothing in them was understood, and some of it was malformed.
        public var garbage = 0
        /// Single lines refused in messages that were taken or not.
        public var refusedLines = 0
        public var closedDescriptors = 0
    }

    public static let maximumLength = 4096

    public let path: String
    public private(set) var counters = Counters()
    /// Readable when there is something to receive.
    public var file: Int32 { socket.file }

    private let socket: LocalSocket
    private var buffer = [UInt8](repeating: 0, count: maximumLength)

    /// Receives at `notify` in `directory`, which must exist.
    public init(directory: String) throws(ChannelError) {
        path = "\(directory)/notify"
        socket = try LocalSocket(.datagrams, at: path)
    }

    /// The variable that tells processes where to send.
    public var environment: [String: String] { ["NOTIFY_SOCKET": path] }

    /// How many messages are passed over at most before `receive` returns: a sender of garbage must not hold the thread.
    private static let patience = 64

    /// The next message worth anything; `nil` if there is none now. Never blocks.
    public func receive() -> Notice? {
        for _ in 0..<Self.patience {
            var datagram = plimsoll_datagram()
            let count = buffer.withUnsafeMutableBytes { plimsoll_receive_datagram(socket.file, $0.baseAddress, $0.count, &datagram) }
            guard count >= 0 else { return nil }
            if let notice = take(count, datagram) { return notice }
        }
        return nil
    }

    private func take(_ count: Int, _ datagram: plimsoll_datagram) -> Notice? {
        // From here on each is closed when nobody has it any more, whichever way this ends.
        var descriptors = withUnsafeBytes(of: datagram.descriptors) { bytes in
            bytes.bindMemory(to: Int32.self).prefix(Int(datagram.descriptor_count)).map { KeptDescriptor($0) }
        }
        let received = descriptors.count
        defer { counters.closedDescriptors += received - descriptors.count }
        guard datagram.is_cut == 0 else {
            descriptors = []
            counters.oversize += 1
            return nil
        }
        guard datagram.has_sender != 0 else {
            descriptors = []
            counters.anonymous += 1
            return nil
        }
        let message = NotifyMessage(parsing: buffer[..<count])
        counters.refusedLines += message.problems.count
        if !message.storesDescriptors { descriptors = [] }
        guard !message.isEmpty else {
            // Keys that are not for us, such as `BARRIER=1`, are no garbage.
            if count == 0 || !message.problems.isEmpty { counters.garbage += 1 }
            return nil
        }
        counters.taken += 1
        return Notice(sender: Sender(process: datagram.pid, user: datagram.uid), message: message, descriptors: descriptors)
    }
}

/// A descriptor that a service has handed over; closed when the last reference goes.
public final class KeptDescriptor: Sendable {
    public let file: Int32

    init(_ file: Int32) { self.file = file }

    deinit { close(file) }
}
