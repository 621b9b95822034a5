import Glibc
import Plimsoll

/// Reads and writes small files of the kernel.
package enum ControlFile {
    /// Returns the text of a file, or `nil` if the file cannot be read.
    package static func text(_ path: String) -> String? {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var text: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 16384)
        while true {
            let count = read(descriptor, &buffer, buffer.count)
            if count < 0 && errno == EINTR { continue }
            guard count > 0 else { return count == 0 ? String(decoding: text, as: UTF8.self) : nil }
            text.append(contentsOf: buffer[..<count])
        }
    }

    /// Returns the number that a file consists of; `nil` for `max` and any other text.
    package static func number(_ path: String) -> Int? {
        guard let text = text(path) else { return nil }
        return Int(text.prefix { !$0.isWhitespace })
    }

    /// Returns the number after `key` at the start of a line.
    package static func number(_ path: String, key: String) -> Int? {
        text(path).flatMap { value(of: key, in: $0) }
    }

    static func value(of key: String, in text: String) -> Int? {
        for line in text.split(separator: "\n") {
            let words = line.split(separator: " ")
            if words.count == 2, words[0] == key { return Int(words[1]) }
        }
        return nil
    }

    /// Writes `text` in one call, as control files require.
    package static func write(_ text: String, to path: String) throws(ControlFileError) {
        let descriptor = open(path, O_WRONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw ControlFileError(path: path, errno: errno) }
        defer { close(descriptor) }
        var text = text
        let (written, error) = text.withUTF8 { (Glibc.write(descriptor, $0.baseAddress, $0.count), errno) }
        if written < 0 { throw ControlFileError(path: path, errno: error) }
    }
}

/// Error of a control file that refused a write.
package struct ControlFileError: Error, CustomStringConvertible {
    var path: String
    var errno: Int32
    package var description: String { "\(path): \(String(cString: strerror(errno)))" }
}

/// The file system of a directory.
package enum FileSystem {
    /// Returns the type's name as in mountinfo. Returns `nil` if the type is unknown, as for file systems whose parts
    /// have devices of their own.
    package static func type(of directory: String) -> String? {
        var status = stat()
        guard stat(directory, &status) == 0, let mounts = ControlFile.text("/proc/self/mountinfo") else { return nil }
        // The device number's layout in glibc (major() and minor() are macros there).
        let number = UInt64(status.st_dev)
        let major = (number >> 8) & 0xfff | (number >> 32) & ~0xfff, minor = number & 0xff | (number >> 12) & ~0xff
        let device = "\(major):\(minor)"
        for line in mounts.split(separator: "\n") {
            let words = line.split(separator: " ")
            if words.count > 2, words[2] == device, let dash = words.firstIndex(of: "-"), dash + 1 < words.count {
                return String(words[dash + 1])
            }
        }
        return nil
    }
}
