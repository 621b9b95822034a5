import Foundation
import Glibc

/// A private temporary directory shared by this program's processes, removed afterwards.
package enum ScratchDirectory {
    /// Makes a directory, passes its path to `body`, and then removes the directory and all contents.
    ///
    /// - Parameter name: name of the directory; short if sockets go there, as socket paths have 107 bytes at most.
    package static func with<Result>(_ name: String, _ body: (String) throws -> Result) throws -> Result {
        let directory = FileManager.default.temporaryDirectory.path + "/plimsoll-\(getpid())-\(name)"
        try FileManager.default.createDirectory(
            atPath: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        defer { try? FileManager.default.removeItem(atPath: directory) }
        return try body(directory)
    }
}
