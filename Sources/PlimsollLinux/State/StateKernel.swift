/// The system calls of the file store. Tests let any of them fail, and simulate power failure between two.
///
/// Results are the kernel's own: a negative number is an errno, negated. May be called from any thread.
package protocol StateKernel: Sendable {
    /// Opens `path` with close-on-exec, not following a final link; returns the descriptor. New files are for the owner
    /// alone (mode 0600).
    func open(_ path: String, _ access: StateFileAccess) -> Int32
    func close(_ file: Int32)
    /// Returns the length of a regular file, in bytes; `-EINVAL` for anything else.
    func length(_ file: Int32) -> Int
    /// Reads from `offset` on; returns the number of bytes, zero at the end.
    func read(_ file: Int32, from offset: Int, into buffer: UnsafeMutableRawBufferPointer) -> Int
    /// Writes from `offset` on; returns the number of bytes taken, which may be fewer.
    func write(_ file: Int32, at offset: Int, _ bytes: UnsafeRawBufferPointer) -> Int
    func truncate(_ file: Int32, to length: Int) -> Int32
    /// Calls `fsync`: returns when the file, or the directory's names, are on the medium.
    func synchronize(_ file: Int32) -> Int32
    func rename(_ old: String, to new: String) -> Int32
    func unlink(_ path: String) -> Int32
    /// Makes a directory for the owner alone (mode 0700).
    func makeDirectory(_ path: String) -> Int32
    /// Returns the names in a directory, without `.` and `..`; or an errno.
    func names(in directory: String) -> Result<[String], KernelError>
    /// Takes an exclusive `flock` without waiting; returns `-EWOULDBLOCK` if another open file has it.
    func lock(_ file: Int32) -> Int32
    /// Releases the lock, even where a child that is being started still has the file open.
    func unlock(_ file: Int32)
    /// The process ID in the process's own PID namespace.
    var processID: Int32 { get }
}

/// The purpose for which a file is opened.
package enum StateFileAccess: Sendable {
    case reading
    /// Read and write an existing file.
    case changing
    /// Write; the file is created, or emptied.
    case replacing
    /// Read and write; the file is created, or kept.
    case locking
    /// Synchronize the names in a directory.
    case directory
}
