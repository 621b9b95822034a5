import CPlimsollSupervisor
import Glibc
import Plimsoll

/// The descriptors that a unit stored with the supervisor for its next start (`FDSTORE=1` of sd_notify(3)). All are
/// closed with the store.
struct DescriptorStore {
    /// Greatest number of descriptors of one unit. The unit's next start receives all of them.
    static let most = Int(PLIMSOLL_MOST_KEPT)
    /// Greatest number of descriptors of all units together. Lower if this process may not open so many.
    static var mostOfAll: Int { min(4096, ForeignCloser.openLimit / 2) }
    /// Greatest memory in memory files (memfd_create(2), tmpfs), of one unit and of all units together.
    static let mostBytes = ByteCount.mebibytes(64), mostBytesOfAll = ByteCount.mebibytes(256)

    private(set) var kept: [(name: String, descriptor: KeptDescriptor)] = []

    /// Remaining capacity of the stores of all units.
    struct Room {
        var count: Int
        var bytes: ByteCount
    }

    /// Stores the descriptors under `name`, or under `stored` if `name` is `nil`.
    ///
    /// - Parameter room: remaining capacity of the stores of all units.
    /// - Returns: number of descriptors closed for lack of capacity.
    mutating func keep(_ descriptors: [KeptDescriptor], name: String?, room: Room) -> Int {
        let name = name ?? "stored"
        var (room, refused) = (room, 0)
        var own = Self.mostBytes - memory
        // The kernel hands out the lowest free number. A number near the limit means that all below are in use.
        let highest = Int32(clamping: ForeignCloser.openLimit - min(1024, ForeignCloser.openLimit / 4))
        for descriptor in descriptors where !holds(descriptor, name) {
            if kept.count >= Self.most { dropHungUp() }
            // Kept files may have grown past the bounds. A descriptor without memory adds nothing to them.
            let bytes = descriptor.memory, fits = bytes == .zero || bytes <= own && bytes <= room.bytes
            guard kept.count < Self.most, room.count > 0, fits, descriptor.file < highest else {
                refused += 1
                continue
            }
            kept.append((name, descriptor))
            (room.count, room.bytes, own) = (room.count - 1, room.bytes - bytes, own - bytes)
        }
        return refused
    }

    mutating func remove(_ name: String) { kept.removeAll { $0.name == name } }

    /// The memory that the stored files hold now. Files grow while a process writes to them.
    var memory: ByteCount { kept.reduce(.zero) { $0 + $1.descriptor.memory } }

    /// Closes descriptors that hold memory, newest first, until at most `limit` is held.
    ///
    /// - Returns: number of closed descriptors, and the memory that they held.
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

    /// Returns true for a socket that is stored under `name` already: services send their whole set repeatedly. Files
    /// are never treated as duplicates, since two descriptors of a file may have different offsets.
    private func holds(_ descriptor: KeptDescriptor, _ name: String) -> Bool {
        guard let socket = Self.socket(descriptor) else { return false }
        return kept.contains { $0.name == name && Self.socket($0.descriptor) == socket }
    }

    /// The inode number of a socket; `nil` for a file, whose file system may not answer.
    private static func socket(_ descriptor: KeptDescriptor) -> UInt64? {
        let inode = plimsoll_socket_number(descriptor.file)
        return inode > 0 ? inode : nil
    }

    /// Drops connections whose other end has closed.
    private mutating func dropHungUp() {
        kept.removeAll { Self.socket($0.descriptor) != nil && plimsoll_ready($0.descriptor.file, 0, 0) != 0 }
    }
}

extension KeptDescriptor {
    /// The memory released with the last reference; zero for anything but memory files. Never waits for a file
    /// system.
    var memory: ByteCount { ByteCount(Int(clamping: plimsoll_memory_held(file))) }
}

/// A descriptor that a service has handed over. Closed soon after the last reference goes, on a thread that may hang.
package final class KeptDescriptor: Sendable {
    package let file: Int32
    /// The unit to blame for a slow close.
    private let owner: String

    init(_ file: Int32, of owner: String = "") { (self.file, self.owner) = (file, owner) }

    deinit { ForeignCloser.shared.close(CollectionOfOne(file), of: owner) }
}
