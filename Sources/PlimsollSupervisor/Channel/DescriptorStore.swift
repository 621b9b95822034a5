import CPlimsollSupervisor
import Glibc
import Plimsoll

/// What a unit has given its supervisor to keep for its next start (`FDSTORE=1` of sd_notify(3)). All goes with it.
struct DescriptorStore {
    /// Of one unit; its next start has all of them.
    static let most = Int(PLIMSOLL_MOST_KEPT)
    /// Of all units together; fewer where this process may not open so many.
    static var mostOfAll: Int { min(4096, ForeignCloser.openLimit / 2) }
    /// Memory in files of memory (memfd_create(2), tmpfs) of one unit, and of all units together.
    static let mostBytes = ByteCount.mebibytes(64), mostBytesOfAll = ByteCount.mebibytes(256)

    private(set) var kept: [(name: String, descriptor: KeptDescriptor)] = []

    /// How much more may be kept, of all units.
    struct Room {
        var count: Int
        var bytes: ByteCount
    }

    /// Keeps them under that name, `stored` where it has none.
    ///
    /// - Parameter room: how much more may be kept of all units.
    /// - Returns: how many were closed for want of room.
    mutating func keep(_ descriptors: [KeptDescriptor], name: String?, room: Room) -> Int {
        let name = name ?? "stored"
        var (room, refused) = (room, 0)
        var own = Self.mostBytes - memory
        // Descriptors have the lowest free numbers: one near the limit says that all below are in use.
        let highest = Int32(clamping: ForeignCloser.openLimit - min(1024, ForeignCloser.openLimit / 4))
        for descriptor in descriptors where !holds(descriptor, name) {
            if kept.count >= Self.most { dropHungUp() }
            let bytes = descriptor.memory
            guard kept.count < Self.most, room.count > 0, bytes <= own, bytes <= room.bytes, descriptor.file < highest else {
                refused += 1
                continue
            }
            kept.append((name, descriptor))
            (room.count, room.bytes, own) = (room.count - 1, room.bytes - bytes, own - bytes)
        }
        return refused
    }

    mutating func remove(_ name: String) { kept.removeAll { $0.name == name } }

    /// The memory that the kept files hold now. They grow as long as a process writes to them.
    var memory: ByteCount { kept.reduce(.zero) { $0 + $1.descriptor.memory } }

    /// Lets go of what holds memory, the newest first, until no more than `limit` is held.
    ///
    /// - Returns: how many descriptors were let go of, and the memory that they held.
    mutating func shrink(to limit: ByteCount) -> (count: Int, bytes: ByteCount) {
        var left = memory, dropped = (count: 0, bytes: ByteCount.zero)
        for index in kept.indices.reversed() where left > limit {
            let bytes = kept[index].descriptor.memory
            guard bytes > .zero else { continue }
            kept.remove(at: index)
            left -= bytes
            dropped = (dropped.count + 1, dropped.bytes + bytes)
        }
        return dropped
    }

    /// A socket that is kept under that name already: services say all they have again and again. Of files, two may stand at different places.
    private func holds(_ descriptor: KeptDescriptor, _ name: String) -> Bool {
        guard let socket = Self.socket(descriptor) else { return false }
        return kept.contains { $0.name == name && Self.socket($0.descriptor) == socket }
    }

    /// The number of a socket; `nil` for a file, whose file system may not answer.
    private static func socket(_ descriptor: KeptDescriptor) -> UInt64? {
        let inode = plimsoll_socket_number(descriptor.file)
        return inode > 0 ? inode : nil
    }

    /// Connections whose other end has gone.
    private mutating func dropHungUp() { kept.removeAll { Self.socket($0.descriptor) != nil && plimsoll_ready($0.descriptor.file, 0, 0) != 0 } }
}

extension KeptDescriptor {
    /// The memory that goes with the last reference; zero for all but files of memory. Never waits for a file system.
    var memory: ByteCount { ByteCount(Int(clamping: plimsoll_memory_held(file))) }
}
