import CPlimsollSupervisor
import Glibc
package import PlimsollLinux

/// Where the supervisor itself is. Those groups and all above them are never a unit's: whoever freezes or kills one of them is gone himself (T32).
package struct OwnGroups: Sendable {
    /// The own group by hierarchy, with the mount above which nothing can be seen; or why it can't.
    package let places: [Hierarchy: GroupPlace]
    private let forbidden: Set<GroupDirectory.Identity>
    private let membership: [UInt8]

    /// Those of this process now.
    package init(_ kernel: any Kernel = HostKernel()) {
        // Read first: if it changes meanwhile, `isCurrent` will tell.
        let membership: [UInt8] = (try? GroupText.read("/proc/self/cgroup").get()) ?? []
        var places: [Hierarchy: GroupPlace] = [.unified: ControlGroup(kernel).unified]
        for hierarchy in Hierarchy.allCases where hierarchy != .unified {
            places[hierarchy] = ControlGroup.version1(hierarchy.rawValue, kernel)
        }
        self.init(places: places, membership: membership)
    }

    package init(places: [Hierarchy: GroupPlace], membership: [UInt8] = []) {
        self.places = places
        self.membership = membership
        var forbidden: Set<GroupDirectory.Identity> = []
        for case .directory(var path, let top) in places.values {
            while path.utf8.count >= top.utf8.count, !path.isEmpty {
                if let identity = GroupDirectory.Identity(at: path) { forbidden.insert(identity) }
                guard path != top, let slash = path.lastIndex(of: "/") else { break }
                path = String(path[..<slash])
            }
        }
        self.forbidden = forbidden
    }

    /// Whether it is one of the own groups or above one, by whatever path it was reached.
    package func contains(_ directory: GroupDirectory) -> Bool { forbidden.contains(directory.identity) }

    /// Whether the supervisor is still where it was. Allocates nothing.
    package var isCurrent: Bool { membership.withUnsafeBytes { plimsoll_membership_is($0.baseAddress, $0.count) != 0 } }
}
