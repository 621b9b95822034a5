import Foundation
import Glibc

/// A directory for what processes of ours share, for us alone, gone afterwards.
enum ScratchDirectory {
    /// Makes one for `body`, which gets its path, and removes it with all that is in it.
    ///
    /// - Parameter name: short, where sockets are put into it: their paths have 107 bytes at most.
    static func with<Result>(_ name: String, _ body: (String) throws -> Result) throws -> Result {
        let directory = FileManager.default.temporaryDirectory.path + "/plimsoll-\(getpid())-\(name)"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        defer { try? FileManager.default.removeItem(atPath: directory) }
        return try body(directory)
    }
}
