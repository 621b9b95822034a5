import Glibc
import Plimsoll

/// Files that are written atomically.
package enum File {
    /// Writes `text` to a draft beside `path` and renames the draft. Makes missing directories.
    package static func write(_ text: String, to path: String) throws {
        func check(_ succeeded: Bool, _ what: String) throws {
            if !succeeded { throw Failure.failed("cannot use \(printable(what)): \(String(cString: strerror(errno)))") }
        }
        for index in path.indices.dropFirst() where path[index] == "/" {
            let directory = String(path[..<index])
            try check(mkdir(directory, 0o755) == 0 || errno == EEXIST, directory)
        }
        let draft = path + ".\(getpid())"
        let descriptor = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
        try check(descriptor >= 0, draft)
        let isWritten = Output.write(text, to: descriptor)
        let reason = errno
        close(descriptor)
        guard isWritten, rename(draft, path) == 0 else {
            if !isWritten { errno = reason }
            let failure = Failure.failed("cannot use \(printable(path)): \(String(cString: strerror(errno)))")
            unlink(draft)
            throw failure
        }
    }
}
