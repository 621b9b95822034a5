#if canImport(Glibc) && !PLIMSOLL_INERT
import CPlimsollLinux
package import Glibc
package import Plimsoll

/// The kernel this process runs on. With a `root`, files are looked up below that directory: a fixture tree.
package struct HostKernel: Kernel {
    private let root: String
    /// Prefix of every path.
    var prefix: String { root }

    package init(root: String = "") { self.root = root }

    package func open(_ path: String, _ access: FileAccess) -> Int32 {
        let mode =
            switch access {
            case .reading: O_RDONLY
            case .writing: O_WRONLY
            case .both: O_RDWR
            }
        return Int32(again { Int(Glibc.open(root + path, mode | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) })
    }

    package func close(_ file: Int32) { _ = Glibc.close(file) }

    package func read(_ file: Int32, from offset: Int, into buffer: UnsafeMutableBufferPointer<UInt8>) -> Int {
        again { pread(file, buffer.baseAddress, buffer.count, offset) }
    }

    package func drain(_ file: Int32) -> Int {
        // More than a kilobyte would be allocated on the heap.
        withUnsafeTemporaryAllocation(byteCount: 1024, alignment: 8) { scratch in
            var total = 0
            // A faster sender is read further on the next turn, so that the thread is not held.
            for _ in 0..<16 {
                let count = Glibc.read(file, scratch.baseAddress, scratch.count)
                if count < 0, errno == EINTR { continue }
                if count < 0 { return total > 0 ? total : -Int(errno) }
                if count == 0 { return total }
                total += count
                if count < scratch.count { return total }
            }
            return total
        }
    }

    package func write(_ file: Int32, _ bytes: UnsafeBufferPointer<UInt8>) -> Int {
        again {
            // Writing to a socket whose other side is gone must not raise SIGPIPE.
            let count = send(file, bytes.baseAddress, bytes.count, Int32(MSG_NOSIGNAL))
            return count < 0 && errno == ENOTSOCK ? Glibc.write(file, bytes.baseAddress, bytes.count) : count
        }
    }

    package func status(of path: String) -> FileStatus {
        var status = stat()
        guard stat(root + path, &status) == 0 else { return .failed(errno) }
        switch status.st_mode & S_IFMT {
        case S_IFDIR: return .directory
        case S_IFIFO: return .fifo
        case S_IFSOCK: return .socket
        case S_IFREG:
            return switch plimsoll_file_system(root + path) {
            case 0x6367_7270: .regular(.cgroup2)  // CGROUP2_SUPER_MAGIC of linux/magic.h
            case 0x9fa0: .regular(.proc)  // PROC_SUPER_MAGIC
            default: .regular(.other)
            }
        default: return .other
        }
    }

    package func connect(_ path: String) -> Int32 { plimsoll_connect(root + path) }

    package func makeEvent() -> Int32 { plimsoll_eventfd() }

    package func makeWatch() -> Int32 { plimsoll_watch() }

    package func watchWrites(to path: String, _ watch: Int32) -> Int32 { plimsoll_watch_writes(watch, root + path) }

    package func wait(for files: UnsafeMutableBufferPointer<pollfd>, nanoseconds: Int64) -> Int {
        Int(plimsoll_poll(files.baseAddress, UInt32(files.count), nanoseconds))
    }

    package var processID: Int32 { getpid() }

    /// Returns the names in a directory that were read before the end or an error, without `.` and `..`, and the errno;
    /// zero for no error.
    package static func listing(of directory: String) -> (names: [String], error: Int32) {
        guard let stream = opendir(directory) else { return ([], errno) }
        defer { closedir(stream) }
        var names: [String] = []
        while true {
            errno = 0
            guard let entry = readdir(stream) else { return (names, errno) }
            let name = withUnsafePointer(to: &entry.pointee.d_name) {
                String(cString: UnsafeRawPointer($0).assumingMemoryBound(to: CChar.self))
            }
            if name != ".", name != ".." { names.append(name) }
        }
    }

    /// Returns the inode of the file at `path`, without following a link; 0 if there is none.
    package static func inode(of path: String) -> UInt64 {
        var status = stat()
        return lstat(path, &status) == 0 ? UInt64(status.st_ino) : 0
    }
}

/// Repeats a call while signals interrupt it. Returns the result, or an errno, negated.
func again(_ call: () -> Int) -> Int {
    while true {
        let result = call()
        if result >= 0 { return result }
        if errno != EINTR { return -Int(errno) }
    }
}

extension Timekeeper {
    /// The machine's running time (`CLOCK_MONOTONIC`). The origin is the same in all processes, so times from several
    /// can be compared.
    package static let machine = Timekeeper {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
    }
}
#endif
