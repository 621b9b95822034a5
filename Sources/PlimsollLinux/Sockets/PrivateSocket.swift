#if canImport(Glibc) && !PLIMSOLL_INERT
import CPlimsollLinux
import Glibc
import Plimsoll

/// A listening UNIX socket for this user alone. The socket file is removed when the object is released.
///
/// The file mode is never wider than 0600, at any instant. A file left by a dead process is replaced. A file at which a
/// process listens is left alone.
package final class PrivateSocket: Sendable {
    package let path: String
    /// The non-blocking listening descriptor.
    package let file: Int32
    /// Inode of the file at `path`, to tell it from a successor's file.
    private let inode: UInt64

    /// The longest path that the kernel takes, in bytes.
    package static var longestPath: Int { Int(plimsoll_longest_socket_path()) }

    /// Number of connections that may wait to be accepted. The kernel tells further ones to try again.
    private static let backlog: Int32 = 32

    /// The process at the other end of a connection, as the kernel reports it (SO_PEERCRED).
    package struct Peer: Sendable, Hashable {
        package var process: Int32
        package var user: UInt32

        package init(process: Int32, user: UInt32) { (self.process, self.user) = (process, user) }
    }

    package init(at path: String) throws(PrivateSocketError) {
        try Self.check(path)
        self.path = path
        let directory = path.lastIndex(of: "/").map { $0 == path.startIndex ? "/" : String(path[..<$0]) } ?? "."
        // Holds the directory's lock. Without the lock, of two processes that find the same stale file, the second
        // would remove the first one's new socket.
        let hold = try Self.hold(directory, for: path)
        defer {
            // Not by closing alone: a process that another thread forks has the descriptor, too, until its exec.
            flock(hold, LOCK_UN)
            close(hold)
        }
        try Self.clear(path)
        file = plimsoll_listen_private(path, Self.backlog)
        inode = HostKernel.inode(of: path)
        guard file >= 0 else { throw PrivateSocketError(listening: path, errno: -file) }
    }

    deinit {
        // This runs also when `init` throws. Then the file there is not ours.
        guard file >= 0 else { return }
        remove()
        close(file)
    }

    /// Removes the socket file, unless another process's file is there now. No client can connect after that.
    package func remove() { if inode != 0, HostKernel.inode(of: path) == inode { unlink(path) } }

    /// Accepts the next connection, to be closed by the caller, and names the peer; returns `nil` if none waits.
    package func accept() -> (file: Int32, peer: Peer)? {
        var (process, user): (pid_t, uid_t) = (0, 0)
        let connection = plimsoll_accept_private(file, &process, &user)
        return connection < 0 ? nil : (connection, Peer(process: process, user: user))
    }

    /// Connects to the process that listens at `path`. Returns a blocking connection, to be closed by the caller, and
    /// that process.
    package static func connect(to path: String) throws(PrivateSocketError) -> (file: Int32, process: Int32) {
        try check(path)
        var process: pid_t = 0
        let file = plimsoll_connect_private(path, &process)
        guard file >= 0 else { throw PrivateSocketError(connecting: path, errno: -file) }
        return (file, process)
    }

    // MARK: -

    private static func check(_ path: String) throws(PrivateSocketError) {
        let length = path.utf8.count
        if path.isEmpty || path.utf8.contains(0) {
            throw PrivateSocketError(
                .path, "cannot use the path of a socket because it is empty or has a zero byte; choose another")
        }
        guard length <= longestPath else {
            throw PrivateSocketError(
                .path,
                "cannot use \(path) because it has \(length) bytes and the path of a UNIX socket has at most \(longestPath); choose a shorter directory"
            )
        }
    }

    /// Removes the file that a dead process left at `path`.
    private static func clear(_ path: String) throws(PrivateSocketError) {
        var status = stat()
        guard lstat(path, &status) == 0 else { return }
        guard status.st_mode & S_IFMT == S_IFSOCK else {
            throw PrivateSocketError(
                .occupied,
                "cannot listen at \(path) because a file that is not a socket is there; remove it, or choose another path"
            )
        }
        do throws(PrivateSocketError) {
            let (file, process) = try connect(to: path)
            close(file)
            throw PrivateSocketError(
                .occupied,
                "cannot listen at \(path) because process \(process) already does; end it, or choose another path")
        } catch {
            switch error.number {
            case ECONNREFUSED: unlink(path)
            case EAGAIN:
                throw PrivateSocketError(
                    .occupied,
                    "cannot listen at \(path) because a busy process already does; end it, or choose another path")
            default: throw error
            }
        }
    }

    /// Locks `directory`. Waits at most a second for others that make a socket there, which takes each less than a
    /// millisecond.
    private static func hold(_ directory: String, for path: String) throws(PrivateSocketError) -> Int32 {
        for attempt in 0..<200 {
            let hold = plimsoll_hold_directory(directory)
            if hold >= 0 { return hold }
            guard hold == -EWOULDBLOCK else { throw PrivateSocketError(listening: path, errno: -hold) }
            if attempt < 199 { usleep(5000) }
        }
        throw PrivateSocketError(
            .occupied,
            "cannot listen at \(path) because another process has locked the directory \(directory) (flock) for a second; choose another directory"
        )
    }
}

/// An error of making or reaching a private socket.
package struct PrivateSocketError: Error, Sendable, Hashable, CustomStringConvertible {
    package enum Kind: Sendable, Hashable {
        /// The path can't be that of a socket.
        case path
        /// Another file or socket is at the path.
        case occupied
        /// No process listens there.
        case absent
        /// The owner is another user.
        case forbidden
        /// Any other error of the kernel.
        case failed
    }

    package let kind: Kind
    /// The request, the reason for the failure, and the remedy.
    package let description: String
    let number: Int32

    init(_ kind: Kind, _ description: String) {
        self.kind = kind
        self.description = description
        number = 0
    }

    init(listening path: String, errno number: Int32) {
        let advice =
            switch number {
            case ENOENT, ENOTDIR: "; its directory must exist"
            case EACCES, EROFS: "; its directory must be writable for this process"
            case EMFILE, ENFILE: "; raise the limit of open files (RLIMIT_NOFILE)"
            case EPERM: "; its file cannot be closed to other users: choose another file system"
            default: ""
            }
        self.init(.failed, number, "cannot listen at \(path): \(String(cString: strerror(number)))\(advice)")
    }

    init(connecting path: String, errno number: Int32) {
        switch number {
        case ENOENT, ENOTDIR: self.init(.absent, number, "cannot connect to \(path) because no socket is there")
        case ECONNREFUSED:
            self.init(
                .absent, number,
                "cannot connect to \(path) because no process listens there; the process that made the socket has ended"
            )
        case EACCES, EPERM:
            self.init(
                .forbidden, number,
                "cannot connect to \(path) because it belongs to another user; connect as its owner or as root")
        case EAGAIN:
            self.init(.failed, number, "cannot connect to \(path) because too many connections wait there; try again")
        default: self.init(.failed, number, "cannot connect to \(path): \(String(cString: strerror(number)))")
        }
    }

    private init(_ kind: Kind, _ number: Int32, _ description: String) {
        self.kind = kind
        self.description = description
        self.number = number
    }
}
#endif
