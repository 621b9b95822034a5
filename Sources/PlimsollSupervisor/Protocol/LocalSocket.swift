import CPlimsollSupervisor
import Glibc
import PlimsollLinux

/// The users that may reach a socket, besides root.
enum SocketAccess: Hashable {
    /// Every user that can reach the directory (0666). The kernel then identifies the sending process.
    case everyone
    /// One user alone, who owns the socket (0600).
    case user(UInt32)

    var owner: uid_t { if case .user(let user) = self { user } else { uid_t.max } }
    var mode: mode_t { self == .everyone ? 0o666 : 0o600 }
}

/// A UNIX socket with a path. The path is removed with this object.
final class LocalSocket: Sendable {
    let path: String
    let file: Int32
    /// Inode of the path, which tells this socket from a successor's.
    private let inode: UInt64
    private let owner: String

    /// Greatest number of connections waiting to be accepted. The kernel refuses more, and their processes retry.
    private static let backlog: Int32 = 64

    enum Kind { case stream, datagrams }

    /// - Parameter owner: the unit that may connect here, to blame for a slow close; empty for all units.
    init(_ kind: Kind, at path: String, access: SocketAccess = .everyone, of owner: String = "") throws(ChannelError) {
        file =
            switch kind {
            case .stream: plimsoll_listen_local(path, Self.backlog, access.owner, access.mode)
            case .datagrams: plimsoll_bind_datagrams(path, access.owner, access.mode)
            }
        (self.path, self.owner) = (path, owner)
        inode = HostKernel.inode(of: path)
        guard file >= 0 else { throw ChannelError("listening at", path, errno: -file) }
    }

    deinit {
        // `deinit` also runs when `init` throws. The socket at the path then belongs to another process.
        guard file >= 0 else { return }
        // A successor that has taken the path must stay reachable.
        if HostKernel.inode(of: path) == inode { unlink(path) }
        // Unread messages and connections that were not accepted may hold descriptors.
        ForeignCloser.shared.close(CollectionOfOne(file), of: owner, isOwnSocket: true)
    }

    /// Restricts the socket to `access` from now on. Returns false if the kernel refuses.
    func admit(_ access: SocketAccess) -> Bool { plimsoll_own_local(path, access.owner, access.mode) == 0 }
}

/// Receives messages of other processes with their descriptors. The caller must not close the descriptors on its own
/// thread.
enum ForeignMessage {
    /// Receives one message.
    ///
    /// - Returns: the length or a negative errno, the kernel's facts about the sender, and the descriptors.
    static func receive(_ file: Int32, into buffer: UnsafeMutableRawBufferPointer) -> (
        count: Int, facts: plimsoll_message, descriptors: [Int32]
    ) {
        withUnsafeTemporaryAllocation(of: Int32.self, capacity: Int(PLIMSOLL_MOST_DESCRIPTORS)) { room in
            var facts = plimsoll_message()
            let count = plimsoll_receive(file, buffer.baseAddress, buffer.count, &facts, room.baseAddress)
            return (count, facts, count >= 0 ? Array(room.prefix(Int(facts.descriptor_count))) : [])
        }
    }
}

/// A socket that could not be made or used.
package struct ChannelError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The failed operation, the object, the reason and the remedy.
    package let description: String

    init(_ asked: String, _ path: String, errno number: Int32) {
        let advice =
            switch number {
            case ENAMETOOLONG: "; a socket's path has at most 107 bytes: choose a shorter directory"
            case EADDRINUSE: "; another process listens there: stop that process, or choose another directory"
            case EEXIST: "; a file that is not a socket is there: remove it, or choose another directory"
            case ENOENT, ENOTDIR: "; the directory must exist"
            case EACCES, EROFS: "; the directory must be writable for the supervisor"
            case EMFILE, ENFILE: "; raise the limit of open files (RLIMIT_NOFILE)"
            default: ""
            }
        description = "\(asked) \(path): \(String(cString: strerror(number)))\(advice)"
    }
}

/// An epoll set: many files that can be waited for as one file.
final class ReadyFiles: Sendable {
    let file: Int32

    init(for path: String) throws(ChannelError) {
        file = plimsoll_queue()
        guard file >= 0 else { throw ChannelError("an epoll file for", path, errno: -file) }
    }

    deinit { if file >= 0 { close(file) } }

    /// Reports `key` when `file` is ready. Returns false if the kernel refuses, for lack of memory or because of its
    /// limit on watches.
    func set(_ file: Int32, _ key: UInt64, reading: Bool = true, writing: Bool = false) -> Bool {
        let readiness = (reading ? plimsoll_readable.rawValue : 0) | (writing ? plimsoll_writable.rawValue : 0)
        return plimsoll_queue_watch(self.file, file, readiness, key) == 0
    }

    /// Removes `file`. Call this before `file` is closed elsewhere: epoll keeps reporting a file while any process
    /// has it open.
    func remove(_ file: Int32) { _ = plimsoll_queue_unwatch(self.file, file) }

    /// Returns the keys of at most 64 ready files. The kernel rotates if there are more.
    func ready() -> [UInt64] {
        let capacity = 64
        return [UInt64](unsafeUninitializedCapacity: capacity) { buffer, count in
            count = Int(max(0, plimsoll_queue_wait(file, buffer.baseAddress, Int32(capacity), 0)))
        }
    }
}
