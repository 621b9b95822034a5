import CPlimsollSupervisor
import Glibc

/// What a unit has given its supervisor to keep for its next start (`FDSTORE=1` of sd_notify(3)). All goes with it.
struct DescriptorStore {
    /// Of one unit; its next start has all of them.
    static let most = Int(PLIMSOLL_MOST_KEPT)
    /// Of all units together.
    static let mostOfAll = 4096

    private(set) var kept: [(name: String, descriptor: KeptDescriptor)] = []

    /// Keeps them under that name, `stored` where it has none.
    ///
    /// - Parameter room: how many more may be kept of all units.
    /// - Returns: how many were closed for want of room.
    mutating func keep(_ descriptors: [KeptDescriptor], name: String?, room: Int) -> Int {
        let name = name ?? "stored"
        var (room, refused) = (room, 0)
        for descriptor in descriptors where !holds(descriptor, name) {
            if kept.count >= Self.most { dropHungUp() }
            guard kept.count < Self.most, room > 0 else {
                refused += 1
                continue
            }
            kept.append((name, descriptor))
            room -= 1
        }
        return refused
    }

    mutating func remove(_ name: String) { kept.removeAll { $0.name == name } }

    /// A socket that is kept under that name already: services say all they have again and again. Of files, two may stand at different places.
    private func holds(_ descriptor: KeptDescriptor, _ name: String) -> Bool {
        guard let socket = Self.socket(descriptor) else { return false }
        return kept.contains { $0.name == name && Self.socket($0.descriptor) == socket }
    }

    private static func socket(_ descriptor: KeptDescriptor) -> UInt64? {
        var status = stat()
        return fstat(descriptor.file, &status) == 0 && status.st_mode & S_IFMT == S_IFSOCK ? UInt64(status.st_ino) : nil
    }

    /// Connections whose other end has gone.
    private mutating func dropHungUp() { kept.removeAll { plimsoll_ready($0.descriptor.file, 0, 0) != 0 } }
}
