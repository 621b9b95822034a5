import CPlimsollSupervisor
import Glibc

/// A UNIX socket with a name of ours, which goes when this does.
final class LocalSocket: Sendable {
    let path: String
    let file: Int32
    /// Of the name, to tell it from a successor's.
    private let inode: UInt64

    /// How many may wait to be accepted; more are refused by the kernel, and try again.
    private static let backlog: Int32 = 64

    enum Kind { case stream, datagrams }

    init(_ kind: Kind, at path: String) throws(ChannelError) {
        file =
            switch kind {
            case .stream: plimsoll_listen_local(path, Self.backlog)
            case .datagrams: plimsoll_bind_datagrams(path)
            }
        self.path = path
        inode = Self.inode(path)
        guard file >= 0 else { throw ChannelError("listening at", path, errno: -file) }
    }

    deinit {
        // This runs also when `init` throws: what lies there is not ours then.
        guard file >= 0 else { return }
        // Whoever came after has replaced it, and must stay reachable.
        if Self.inode(path) == inode { unlink(path) }
        close(file)
    }

    /// 0 for none.
    private static func inode(_ path: String) -> UInt64 {
        var status = stat()
        return lstat(path, &status) == 0 ? UInt64(status.st_ino) : 0
    }
}

/// A socket that could not be made or used.
public struct ChannelError: Error, Sendable, Hashable, CustomStringConvertible {
    /// What was asked of what, why not, and what to do.
    public let description: String

    init(_ asked: String, _ path: String, errno number: Int32) {
        let advice =
            switch number {
            case ENAMETOOLONG: "; a socket's path has at most 107 bytes: choose a shorter directory"
            case EEXIST: "; something that is no socket lies there: remove it or choose another directory"
            case ENOENT, ENOTDIR: "; the directory must exist"
            case EACCES, EROFS: "; the directory must be writable for the supervisor"
            case EMFILE, ENFILE: "; raise the limit of open files (RLIMIT_NOFILE)"
            default: ""
            }
        description = "\(asked) \(path): \(String(cString: strerror(number)))\(advice)"
    }
}

/// Which of several files is ready, as one file that others can wait for.
final class ReadyFiles: Sendable {
    let file: Int32

    init(for path: String) throws(ChannelError) {
        file = plimsoll_epoll()
        guard file >= 0 else { throw ChannelError("an epoll file for", path, errno: -file) }
    }

    deinit { if file >= 0 { close(file) } }

    /// Has `key` said when `file` is ready; false if the kernel refuses, for want of memory or by its limit of watches.
    func set(_ file: Int32, _ key: UInt64, reading: Bool = true, writing: Bool = false) -> Bool {
        plimsoll_epoll_set(self.file, file, key, reading ? 1 : 0, writing ? 1 : 0) == 0
    }

    /// At most 64 of what is ready now. The kernel takes turns if there are more.
    func ready() -> [UInt64] {
        let capacity = 64
        return [UInt64](unsafeUninitializedCapacity: capacity) { buffer, count in
            count = Int(max(0, plimsoll_epoll_ready(file, buffer.baseAddress, Int32(capacity))))
        }
    }
}
