#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc

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
    /// Returns true if the file belongs to this user, and no other user may write to it.
    func isOwn(_ file: Int32) -> Bool
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

/// The kernel this process runs on.
package struct HostStateKernel: StateKernel {
    package init() {}

    package func open(_ path: String, _ access: StateFileAccess) -> Int32 {
        let mode =
            switch access {
            // Never blocking: the file there may be a FIFO.
            case .reading: O_RDONLY | O_NONBLOCK
            case .changing: O_RDWR | O_NONBLOCK
            case .replacing: O_WRONLY | O_CREAT | O_TRUNC
            case .locking: O_RDWR | O_CREAT
            case .directory: O_RDONLY | O_DIRECTORY
            }
        let link = access == .directory ? 0 : O_NOFOLLOW
        return Int32(again { Int(Glibc.open(path, mode | link | O_CLOEXEC | O_NOCTTY, 0o600)) })
    }

    package func close(_ file: Int32) { _ = Glibc.close(file) }

    package func length(_ file: Int32) -> Int {
        var status = stat()
        guard fstat(file, &status) == 0 else { return -Int(errno) }
        return status.st_mode & S_IFMT == S_IFREG ? Int(status.st_size) : -Int(EINVAL)
    }

    package func isOwn(_ file: Int32) -> Bool {
        var status = stat()
        return fstat(file, &status) == 0 && status.st_uid == geteuid() && status.st_mode & 0o022 == 0
    }

    package func read(_ file: Int32, from offset: Int, into buffer: UnsafeMutableRawBufferPointer) -> Int {
        again { pread(file, buffer.baseAddress, buffer.count, offset) }
    }

    package func write(_ file: Int32, at offset: Int, _ bytes: UnsafeRawBufferPointer) -> Int {
        again { pwrite(file, bytes.baseAddress, bytes.count, offset) }
    }

    package func truncate(_ file: Int32, to length: Int) -> Int32 { Int32(again { Int(ftruncate(file, length)) }) }
    package func synchronize(_ file: Int32) -> Int32 { Int32(again { Int(fsync(file)) }) }
    package func rename(_ old: String, to new: String) -> Int32 { Glibc.rename(old, new) == 0 ? 0 : -errno }
    package func unlink(_ path: String) -> Int32 { Glibc.unlink(path) == 0 ? 0 : -errno }
    package func makeDirectory(_ path: String) -> Int32 { mkdir(path, 0o700) == 0 ? 0 : -errno }
    package func lock(_ file: Int32) -> Int32 { Int32(again { Int(flock(file, LOCK_EX | LOCK_NB)) }) }
    package func unlock(_ file: Int32) { _ = flock(file, LOCK_UN) }
    package var processID: Int32 { getpid() }

    package func names(in directory: String) -> Result<[String], KernelError> {
        let (names, error) = HostKernel.listing(of: directory)
        return error == 0 ? .success(names) : .failure(KernelError(number: error))
    }
}
#endif
