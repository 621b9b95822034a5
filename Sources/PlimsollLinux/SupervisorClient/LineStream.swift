#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc

/// Non-blocking lines over a stream socket, in both directions. Buffers incomplete received lines, and bytes that could
/// not be sent yet.
package struct LineStream {
    package let file: Int32
    /// Number of lines sent, and so the sequence number of the last.
    package private(set) var sent: UInt64 = 0
    /// Sequence number of the last line dequeued.
    package private(set) var received: UInt64 = 0
    /// The rest of a line that the kernel took a part of.
    package private(set) var outbox: ArraySlice<UInt8> = []
    /// The receive buffer; `count` bytes have come. The size is fixed: a sender of longer lines does not speak this
    /// protocol.
    private var inbox = [UInt8](repeating: 0, count: MessageLine.maximumLength)
    private var count = 0
    /// Offset in `inbox` where the next line begins.
    private var start = 0

    /// Creates a stream over `file`. Does not close `file`.
    package init(_ file: Int32) { self.file = file }

    // MARK: Reading

    package enum Arrival: Sendable { case bytes, nothing, gone }

    /// Receives the available bytes, as far as there is room.
    package mutating func read() -> Arrival {
        read { file, room in
            let taken = recv(file, room.baseAddress, room.count, Int32(MSG_DONTWAIT))
            return taken < 0 ? -Int(errno) : taken
        }
    }

    /// Receives the available bytes with a function of the caller.
    ///
    /// - Parameter receive: fills the room from the file without blocking; returns the number of bytes, 0 for the end,
    ///   or a negative errno.
    package mutating func read(by receive: (Int32, UnsafeMutableRawBufferPointer) -> Int) -> Arrival {
        if start > 0 {
            for offset in start..<count { inbox[offset - start] = inbox[offset] }
            (start, count) = (0, count - start)
        }
        guard count < inbox.count else { return .bytes }
        let taken = inbox.withUnsafeMutableBytes {
            receive(file, UnsafeMutableRawBufferPointer(rebasing: $0[count...]))
        }
        if taken > 0 {
            count += taken
            return .bytes
        }
        return taken == -Int(EAGAIN) || taken == -Int(EINTR) ? .nothing : .gone
    }

    /// True if `nextLine` has a line, or an error.
    package var hasLine: Bool { inbox[start..<count].contains(UInt8(ascii: "\n")) || isFull }

    private var isFull: Bool { start == 0 && count == inbox.count }

    /// Dequeues the next whole line without its newline; returns `nil` if there is none yet.
    package mutating func nextLine() throws(MessageError) -> ArraySlice<UInt8>? {
        guard let end = inbox[start..<count].firstIndex(of: UInt8(ascii: "\n")) else {
            if isFull { throw .tooLong }
            return nil
        }
        defer { start = end + 1 }
        return inbox[start..<end]
    }

    /// Records the sequence number of a dequeued line. Returns false unless the number follows the last.
    package mutating func follows(_ sequence: UInt64) -> Bool {
        guard sequence == received &+ 1 else { return false }
        received = sequence
        return true
    }

    // MARK: Writing

    /// Sends the line that `line` makes for its sequence number. Returns false if there is no room. Never waits; a line
    /// that was begun is completed by `flush`.
    package mutating func send(_ line: (_ sequence: UInt64) -> [UInt8]) -> Bool {
        guard flush() else { return false }
        let bytes = line(sent + 1)
        let taken = write(bytes[...])
        guard taken > 0 else { return false }
        sent += 1
        outbox = bytes[taken...]
        return true
    }

    /// Sends the rest of the last line. Returns true if nothing is left.
    package mutating func flush() -> Bool {
        guard !outbox.isEmpty else { return true }
        outbox = outbox.dropFirst(max(0, write(outbox)))
        return outbox.isEmpty
    }

    private func write(_ bytes: ArraySlice<UInt8>) -> Int {
        bytes.withUnsafeBytes { bytes in
            while true {
                let taken = Glibc.send(file, bytes.baseAddress, bytes.count, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT))
                if taken >= 0 || errno != EINTR { return taken }
            }
        }
    }
}
#endif
