#if canImport(Glibc) && !PLIMSOLL_INERT
package import Glibc

/// The system calls that this target makes, below every parser. Tests script the kernel's text and let any call fail.
///
/// Results are the kernel's own: a negative number is an errno, negated. May be called from any thread.
package protocol Kernel: Sendable {
    /// Opens `path` with close-on-exec and non-blocking; returns the descriptor.
    func open(_ path: String, _ access: FileAccess) -> Int32

    /// Closes a file, eventfd, socket or watch.
    func close(_ file: Int32)

    /// Reads from `offset` on; returns the number of bytes, zero at the end.
    func read(_ file: Int32, from offset: Int, into buffer: UnsafeMutableBufferPointer<UInt8>) -> Int

    /// Empties the queue of an eventfd, FIFO, socket or watch. Returns the number of bytes, zero if the other side has
    /// closed, `-EAGAIN` for nothing.
    func drain(_ file: Int32) -> Int

    /// Writes all of `bytes` in one call; returns the number of bytes taken.
    func write(_ file: Int32, _ bytes: UnsafeBufferPointer<UInt8>) -> Int

    /// Returns the type of the file at `path`.
    func status(of path: String) -> FileStatus

    /// Returns a stream socket connected to the UNIX socket at `path`.
    func connect(_ path: String) -> Int32

    /// Makes an eventfd at zero.
    func makeEvent() -> Int32

    /// Makes a watch: a file that is ready after a write to one of the watched paths.
    func makeWatch() -> Int32

    /// Adds `path` to the paths of `watch`; returns zero, or a negative errno.
    func watchWrites(to path: String, _ watch: Int32) -> Int32

    /// Blocks until one of `files` is ready or the time has passed; returns the number of ready files. A signal ends
    /// the wait early with zero.
    func wait(for files: UnsafeMutableBufferPointer<pollfd>, nanoseconds: Int64) -> Int

    /// The process ID in the process's own PID namespace.
    var processID: Int32 { get }
}

package enum FileAccess: Sendable { case reading, writing, both }

/// The type of the file at a path.
package enum FileStatus: Sendable, Equatable {
    case regular(FileSystem)
    case directory
    case fifo
    case socket
    /// A device or another kind that can't be watched.
    case other
    /// The file can't be reached, for this errno.
    case failed(Int32)

    package enum FileSystem: Sendable { case cgroup2, proc, other }
}

/// The error of a system call, with the kernel's text.
package struct KernelError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The errno, positive.
    package var number: Int32

    /// The kernel's text, such as `"Permission denied"`.
    package var description: String { number > 0 ? String(cString: strerror(number)) : "malformed" }

    /// True if the same call will fail again until the machine is changed: the file does not exist or is not
    /// accessible.
    var isLasting: Bool { [ENOENT, ENOTDIR, EACCES, EPERM, EROFS, EOPNOTSUPP, EINVAL].contains(number) }

    /// The text was read but not understood.
    static let malformed = KernelError(number: 0)
}
#endif
