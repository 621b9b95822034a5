/// The system calls that state in files is made of, so that tests fail any of them, and take the power away between two.
///
/// Results are the kernel's own: a negative number is an errno, negated. May be called from any thread.
package protocol StateKernel: Sendable {
    /// Opens `path`, closed on exec, following no link at its end; the file's number. What it makes is for the owner alone (mode 0600).
    func open(_ path: String, _ access: StateFileAccess) -> Int32
    func close(_ file: Int32)
    /// The length of a regular file, in bytes; `-EINVAL` for anything else.
    func length(_ file: Int32) -> Int
    /// Reads from `offset` on; the number of bytes, zero at the end.
    func read(_ file: Int32, from offset: Int, into buffer: UnsafeMutableRawBufferPointer) -> Int
    /// Writes from `offset` on; the number of bytes taken, which may be fewer.
    func write(_ file: Int32, at offset: Int, _ bytes: UnsafeRawBufferPointer) -> Int
    func truncate(_ file: Int32, to length: Int) -> Int32
    /// `fsync`: returns when the file, or the directory's names, are on the medium.
    func synchronize(_ file: Int32) -> Int32
    func rename(_ old: String, to new: String) -> Int32
    func unlink(_ path: String) -> Int32
    /// A directory for the owner alone (mode 0700).
    func makeDirectory(_ path: String) -> Int32
    /// The names in a directory, without `.` and `..`; or an errno.
    func names(in directory: String) -> Result<[String], KernelError>
    /// Takes an exclusive `flock` without waiting; `-EWOULDBLOCK` if another open file has it.
    func lock(_ file: Int32) -> Int32
    /// Lets go of it, also where a child that is being started still has the file open.
    func unlock(_ file: Int32)
    /// This process, as its own process namespace numbers it.
    var processID: Int32 { get }
}

/// What a file is opened for.
package enum StateFileAccess: Sendable {
    case reading
    /// Reading and writing what is there.
    case changing
    /// Writing; it is made, or emptied.
    case replacing
    /// Reading and writing; it is made, or kept.
    case locking
    /// Synchronizing the names in it.
    case directory
}
