import CPlimsollSupervisor
import Glibc

/// The users that may reach a socket, besides root.
enum SocketAccess: Hashable {
    /// Every user that reaches the directory (0666): the kernel then says which process speaks.
    case everyone
    /// That user alone, who owns the socket (0600).
    case user(UInt32)

    var owner: uid_t { if case .user(let user) = self { user } else { uid_t.max } }
    var mode: mode_t { self == .everyone ? 0o666 : 0o600 }
}

/// A UNIX socket with a name of its own, which goes with this object.
final class LocalSocket: Sendable {
    let path: String
    let file: Int32
    /// Of the name, to tell the socket from a successor's.
    private let inode: UInt64
    private let owner: String

    /// How many connections may wait to be accepted; the kernel refuses more, and their processes try again.
    private static let backlog: Int32 = 64

    enum Kind { case stream, datagrams }

    /// - Parameter owner: the unit that may speak here, whose doing a slow close would be; empty for all units.
    init(_ kind: Kind, at path: String, access: SocketAccess = .everyone, of owner: String = "") throws(ChannelError) {
        file =
            switch kind {
            case .stream: plimsoll_listen_local(path, Self.backlog, access.owner, access.mode)
            case .datagrams: plimsoll_bind_datagrams(path, access.owner, access.mode)
            }
        (self.path, self.owner) = (path, owner)
        inode = Self.inode(path)
        guard file >= 0 else { throw ChannelError("listening at", path, errno: -file) }
    }

    deinit {
        // This runs also when `init` throws: what lies at the path then belongs to another.
        guard file >= 0 else { return }
        // A successor that has taken the path must stay reachable.
        if Self.inode(path) == inode { unlink(path) }
        // Messages and connections that were not taken may hold descriptors.
        ForeignCloser.shared.close(CollectionOfOne(file), of: owner, isOwnSocket: true)
    }

    /// Lets `access` reach the socket from now on; false if the kernel refuses.
    func admit(_ access: SocketAccess) -> Bool { plimsoll_own_local(path, access.owner, access.mode) == 0 }

    /// 0 for none.
    private static func inode(_ path: String) -> UInt64 {
        var status = stat()
        return lstat(path, &status) == 0 ? UInt64(status.st_ino) : 0
    }
}

/// Takes messages of other processes, with the descriptors that come along, which nothing may close on the calling thread.
enum ForeignMessage {
    /// Receives one message.
    ///
    /// - Returns: its length or a negative errno, what the kernel tells of it, and its descriptors.
    static func receive(_ file: Int32, into buffer: UnsafeMutableRawBufferPointer) -> (count: Int, facts: plimsoll_message, descriptors: [Int32]) {
        withUnsafeTemporaryAllocation(of: Int32.self, capacity: Int(PLIMSOLL_MOST_DESCRIPTORS)) { room in
            var facts = plimsoll_message()
            let count = plimsoll_receive(file, buffer.baseAddress, buffer.count, &facts, room.baseAddress)
            return (count, facts, count >= 0 ? Array(room.prefix(Int(facts.descriptor_count))) : [])
        }
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
            case EADDRINUSE: "; another process listens there: stop that supervisor, or choose another directory"
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

    /// Before `file` is closed elsewhere: as long as any process has it open, it would be told of.
    func remove(_ file: Int32) { _ = plimsoll_epoll_remove(self.file, file) }

    /// At most 64 of what is ready now. The kernel takes turns if there are more.
    func ready() -> [UInt64] {
        let capacity = 64
        return [UInt64](unsafeUninitializedCapacity: capacity) { buffer, count in
            count = Int(max(0, plimsoll_epoll_ready(file, buffer.baseAddress, Int32(capacity))))
        }
    }
}
