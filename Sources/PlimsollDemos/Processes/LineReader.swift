import Glibc

/// Reads lines from a pipe, without blocking on an incomplete line.
package final class LineReader {
    package let descriptor: Int32
    private(set) var isAtEnd = false
    private var rest: [UInt8] = []

    init(owning descriptor: Int32) {
        self.descriptor = descriptor
        _ = fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK)
    }

    deinit { close(descriptor) }

    /// Returns the lines received since the last call. At the end of the stream, includes a last line without a
    /// newline.
    package func lines() -> [String] {
        var buffer = [UInt8](repeating: 0, count: 65536)
        while !isAtEnd {
            let count = read(descriptor, &buffer, buffer.count)
            if count > 0 {
                rest.append(contentsOf: buffer[..<count])
            } else if count == 0 {
                isAtEnd = true
            } else if errno != EINTR {
                if errno != EAGAIN { isAtEnd = true }
                break
            }
        }
        var lines: [String] = []
        while let end = rest.firstIndex(of: UInt8(ascii: "\n")) {
            lines.append(String(decoding: rest[..<end], as: UTF8.self))
            rest.removeSubrange(...end)
        }
        if isAtEnd, !rest.isEmpty {
            lines.append(String(decoding: rest, as: UTF8.self))
            rest = []
        }
        return lines
    }
}
