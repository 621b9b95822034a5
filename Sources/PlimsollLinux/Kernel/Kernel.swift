package import Glibc

/// The system calls that this target makes, below every parser, so that tests script the kernel's text and fail any call.
///
/// Results are the kernel's own: a negative number is an errno, negated. May be called from any thread.
package protocol Kernel: Sendable {
    /// Opens `path`, closed on exec and never blocking; the file's number.
    func open(_ path: String, _ access: FileAccess) -> Int32

    /// Closes a file, eventfd, socket or watch.
    func close(_ file: Int32)

    /// Reads from `offset` on; the number of bytes, zero at the end.
    func read(_ file: Int32, from offset: Int, into buffer: UnsafeMutableBufferPointer<UInt8>) -> Int

    /// Takes what is queued in an eventfd, FIFO, socket or watch; the number of bytes, zero if the other side has closed, `-EAGAIN` for nothing.
    func drain(_ file: Int32) -> Int

    /// Writes all of `bytes` in one call; the number of bytes taken.
    func write(_ file: Int32, _ bytes: UnsafeBufferPointer<UInt8>) -> Int

    /// What lies at `path`.
    func status(of path: String) -> FileStatus

    /// A stream socket connected to the UNIX socket at `path`.
    func connect(_ path: String) -> Int32

    /// An eventfd at zero.
    func makeEvent() -> Int32

    /// A file that is ready when somebody has written to one of the paths it watches.
    func makeWatch() -> Int32

    /// Adds `path` to what `watch` watches; zero, or a negative errno.
    func watchWrites(to path: String, _ watch: Int32) -> Int32

    /// Blocks until one of `files` is ready or the time has passed; how many are ready. A signal ends it early with zero.
    func wait(for files: UnsafeMutableBufferPointer<pollfd>, nanoseconds: Int64) -> Int

    /// This process, as its own process namespace numbers it.
    var processID: Int32 { get }
}

/// What a file is opened for.
package enum FileAccess: Sendable { case reading, writing, both }

/// What lies at a path.
package enum FileStatus: Sendable, Equatable {
    case regular(FileSystem)
    case directory
    case fifo
    case socket
    /// A device or another kind that nothing can be watched on.
    case other
    /// Nothing to be reached, for this errno.
    case failed(Int32)

    /// The file systems told apart.
    package enum FileSystem: Sendable { case cgroup2, proc, other }
}
