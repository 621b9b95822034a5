import Glibc

/// What a directory lies on.
enum FileSystem {
    /// The type's name as mountinfo has it; `nil` if it cannot be told (file systems with devices of their own for parts).
    static func type(of directory: String) -> String? {
        var status = stat()
        guard stat(directory, &status) == 0, let mounts = ControlFile.text("/proc/self/mountinfo") else { return nil }
        // As glibc packs it (its major() and minor() are macros).
        let number = UInt64(status.st_dev)
        let major = (number >> 8) & 0xfff | (number >> 32) & ~0xfff, minor = number & 0xff | (number >> 12) & ~0xff
        let device = "\(major):\(minor)"
        for line in mounts.split(separator: "\n") {
            let words = line.split(separator: " ")
            if words.count > 2, words[2] == device, let dash = words.firstIndex(of: "-"), dash + 1 < words.count { return String(words[dash + 1]) }
        }
        return nil
    }
}
