import CPlimsollSupervisor
import Glibc

/// The server side of sd_notify(3): a datagram socket for one unit or for all. The kernel identifies the senders.
///
/// Poll `file` and call `receive()` until it returns `nil`. Only one thread at a time may use a socket.
package final class NotifySocket {
    /// The sender of a message, as reported by the kernel.
    package struct Sender: Sendable, Hashable {
        /// The sending process, which need not be the main one of its unit; 0 if the process is in another pid
        /// namespace.
        package var process: Int32
        package var user: UInt32
    }

    /// A message that was accepted.
    package struct Notice: Sendable {
        package var sender: Sender
        /// The unit that `unitOf` returned; `nil` if the socket has no `unitOf`.
        package var unit: String?
        package var message: NotifyMessage
        /// Descriptors to store for the service (`FDSTORE=1`). The last reference to a descriptor closes it.
        /// Descriptors without `FDSTORE=1` are closed at once, which is also what `BARRIER=1` waits for.
        package var descriptors: [KeptDescriptor]
    }

    /// Counts of accepted and dropped messages since the start.
    package struct Counters: Sendable, Hashable {
        package var taken = 0
        /// Messages longer than 4 KiB or with more than 16 descriptors.
        package var oversize = 0
        /// Messages without a sender.
        package var anonymous = 0
        /// Messages of senders that `unitOf` does not know. Their text is not parsed.
        package var strangers = 0
        /// Messages without an understood line and with a malformed one.
        package var garbage = 0
        /// Single lines rejected, in accepted and in dropped messages.
        package var refusedLines = 0
        package var closedDescriptors = 0
    }

    package static let maximumLength = 4096
    /// Greatest number of descriptors in a message. More are treated as a mistake, and the message is dropped.
    static let maximumDescriptors = 16

    package let path: String
    package private(set) var counters = Counters()
    /// Readable when a message can be received.
    package var file: Int32 { socket.file }

    private let socket: LocalSocket
    private let unit: String
    private let unitOf: ((Sender) -> String?)?
    private(set) var access: SocketAccess

    /// Receives at `notify` in `directory`, which must exist.
    ///
    /// - Throws: `ChannelError`, also if another process receives there.
    package convenience init(directory: String) throws(ChannelError) {
        try self.init(path: "\(directory)/notify", unit: "", access: .everyone, unitOf: nil)
    }

    /// Receives at `notify`, or for one unit at `UNIT.notify`, in `directory`.
    ///
    /// - Parameters:
    ///   - unit: the unit that owns the socket; `nil` for all units.
    ///   - access: the users that may reach the socket.
    ///   - unitOf: returns the unit of a sender; `nil` for a stranger, whose message is dropped unparsed.
    convenience init(
        directory: String, unit: String?, access: SocketAccess = .everyone, unitOf: @escaping (Sender) -> String?
    ) throws(ChannelError) {
        try self.init(
            path: "\(directory)/\(unit.map { "\($0)." } ?? "")notify", unit: unit ?? "", access: access, unitOf: unitOf)
    }

    private init(path: String, unit: String, access: SocketAccess, unitOf: ((Sender) -> String?)?) throws(ChannelError)
    {
        (self.path, self.unit, self.unitOf, self.access) = (path, unit, unitOf, access)
        socket = try LocalSocket(.datagrams, at: path, access: access, of: unit)
    }

    /// The variable that tells processes the socket's path.
    package var environment: [String: String] { ["NOTIFY_SOCKET": path] }

    /// Restricts the socket to `access` from now on.
    func admit(_ access: SocketAccess) {
        guard access != self.access, socket.admit(access) else { return }
        self.access = access
    }

    /// True while earlier descriptors are closed so slowly that no more should be received.
    var isBlocked: Bool {
        ForeignCloser.shared.isFull(unit) || (!unit.isEmpty && access == .everyone && ForeignCloser.shared.isFull(""))
    }

    /// Greatest number of messages that one `receive` drops. A sender of garbage must not occupy the thread.
    private static let patience = 64

    /// Returns the next valid message; `nil` if there is none now. Never blocks.
    package func receive() -> Notice? {
        for _ in 0..<Self.patience {
            switch receiveOne() {
            case .nothing: return nil
            case .dropped: continue
            case .notice(let notice): return notice
            }
        }
        return nil
    }

    enum Arrival { case nothing, dropped, notice(Notice) }

    /// Receives one message and accepts or drops the message.
    func receiveOne() -> Arrival {
        guard !isBlocked else { return .nothing }
        return withUnsafeTemporaryAllocation(byteCount: Self.maximumLength, alignment: 1) { buffer in
            let (count, facts, descriptors) = ForeignMessage.receive(socket.file, into: buffer)
            guard count >= 0 else { return .nothing }
            return take(buffer[..<count], facts, descriptors).map { .notice($0) } ?? .dropped
        }
    }

    private func take(_ text: Slice<UnsafeMutableRawBufferPointer>, _ facts: plimsoll_message, _ files: [Int32])
        -> Notice?
    {
        guard facts.has_sender != 0, facts.pid >= 0 else {
            counters.anonymous += 1
            return drop(files, of: "")
        }
        let sender = Sender(process: facts.pid, user: facts.uid)
        let unit = unitOf.map { $0(sender) }
        if case .some(.none) = unit {
            counters.strangers += 1
            return drop(files, of: "")
        }
        let owner = unit.flatMap { $0 } ?? self.unit
        guard facts.is_cut == 0, files.count <= Self.maximumDescriptors else {
            counters.oversize += 1
            return drop(files, of: owner)
        }
        let message = NotifyMessage(parsing: text)
        counters.refusedLines += message.problems.count
        var descriptors: [KeptDescriptor] = []
        if message.storesDescriptors {
            descriptors = files.map { KeptDescriptor($0, of: owner) }
        } else {
            drop(files, of: owner)
        }
        guard !message.isEmpty else {
            // Keys for other receivers, such as `BARRIER=1`, are not garbage.
            if text.isEmpty || !message.problems.isEmpty { counters.garbage += 1 }
            return nil
        }
        counters.taken += 1
        return Notice(sender: sender, unit: unit ?? nil, message: message, descriptors: descriptors)
    }

    @discardableResult
    private func drop(_ files: [Int32], of owner: String) -> Notice? {
        counters.closedDescriptors += files.count
        ForeignCloser.shared.close(files, of: owner)
        return nil
    }
}
