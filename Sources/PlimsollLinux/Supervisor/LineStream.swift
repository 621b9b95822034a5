import Glibc

/// Lines over a stream socket, in both directions, that never block: what has come and is no whole line yet, and what could not be sent yet.
package struct LineStream {
    package let file: Int32
    /// Lines sent, and so the number of the last.
    package private(set) var sent: UInt64 = 0
    /// The number of the last line taken.
    package private(set) var heard: UInt64 = 0
    /// The rest of a line that the kernel took a part of.
    package private(set) var outbox: ArraySlice<UInt8> = []
    /// Of `inbox`, that many bytes have come. Fixed: whoever sends a longer line is no speaker of this protocol.
    private var inbox = [UInt8](repeating: 0, count: MessageLine.maximumLength)
    private var count = 0
    /// Where in `inbox` the next line begins.
    private var start = 0

    /// Does not close `file`.
    package init(_ file: Int32) { self.file = file }

    // MARK: Reading

    package enum Arrival: Sendable { case bytes, nothing, gone }

    /// Takes what has come, as far as there is room.
    package mutating func read() -> Arrival {
        read { file, room in
            let taken = recv(file, room.baseAddress, room.count, Int32(MSG_DONTWAIT))
            return taken < 0 ? -Int(errno) : taken
        }
    }

    /// Takes what has come by a call of the caller's.
    ///
    /// - Parameter receive: fills the room from the file without blocking; returns the number of bytes, 0 for the end, or a negative errno.
    package mutating func read(by receive: (Int32, UnsafeMutableRawBufferPointer) -> Int) -> Arrival {
        if start > 0 {
            for offset in start..<count { inbox[offset - start] = inbox[offset] }
            (start, count) = (0, count - start)
        }
        guard count < inbox.count else { return .bytes }
        let taken = inbox.withUnsafeMutableBytes { receive(file, UnsafeMutableRawBufferPointer(rebasing: $0[count...])) }
        if taken > 0 {
            count += taken
            return .bytes
        }
        return taken == -Int(EAGAIN) || taken == -Int(EINTR) ? .nothing : .gone
    }

    /// Whether `nextLine` has one, or an error.
    package var hasLine: Bool { inbox[start..<count].contains(UInt8(ascii: "\n")) || isFull }

    private var isFull: Bool { start == 0 && count == inbox.count }

    /// The next whole line without its newline; `nil` for none yet.
    package mutating func nextLine() throws(MessageError) -> ArraySlice<UInt8>? {
        guard let end = inbox[start..<count].firstIndex(of: UInt8(ascii: "\n")) else {
            if isFull { throw .tooLong }
            return nil
        }
        defer { start = end + 1 }
        return inbox[start..<end]
    }

    /// Notes the number of a line taken; false unless it is the one after the last.
    package mutating func follows(_ sequence: UInt64) -> Bool {
        guard sequence == heard &+ 1 else { return false }
        heard = sequence
        return true
    }

    // MARK: Writing

    /// Sends what `line` makes of its number; false if there is no room. It is never waited for, and never sent by half.
    package mutating func send(_ line: (_ sequence: UInt64) -> [UInt8]) -> Bool {
        guard flush() else { return false }
        let bytes = line(sent + 1)
        let taken = write(bytes[...])
        guard taken > 0 else { return false }
        sent += 1
        outbox = bytes[taken...]
        return true
    }

    /// Sends what is left of the last line; whether all is sent.
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
