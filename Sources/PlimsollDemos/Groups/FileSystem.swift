import Glibc

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
