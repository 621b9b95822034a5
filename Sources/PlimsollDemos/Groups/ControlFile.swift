import Glibc
import Plimsoll
import PlimsollSupervisor

/// Reads and writes small files of the kernel.
package enum ControlFile {
    /// Returns the text of a file, or `nil` if the file cannot be read.
    package static func text(_ path: String) -> String? {
        guard case .success(let text) = GroupText.read(path) else { return nil }
        return String(decoding: text, as: UTF8.self)
    }

    /// Returns the number that a file consists of; `nil` for `max` and any other text.
    package static func number(_ path: String) -> Int? { text(path).flatMap { GroupText.number($0.utf8) } }

    /// Returns the number after `key` at the start of a line.
    package static func number(_ path: String, key: String) -> Int? {
        text(path).flatMap { value(of: key, in: $0) }
    }

    static func value(of key: String, in text: String) -> Int? { GroupText.number(of: key, in: text.utf8) }

    /// Writes `text` in one call, as control files require.
    package static func write(_ text: String, to path: String) throws(ControlFileError) {
        if let number = GroupText.write(text, to: path) { throw ControlFileError(path: path, errno: number) }
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
