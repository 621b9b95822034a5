import CPlimsollSupervisor
import Glibc
package import PlimsollLinux

/// The groups of the supervisor itself. These groups and all above them never become a unit's: a supervisor that
/// freezes or kills one of them stops itself (T32).
package struct OwnGroups: Sendable {
    /// The own group by hierarchy, with the mount above which no group is visible, or the reason why the group is
    /// unknown.
    package let places: [Hierarchy: GroupPlace]
    private let forbidden: Set<GroupDirectory.Identity>
    private let membership: [UInt8]

    /// Reads the groups of this process.
    package init(_ kernel: any Kernel = HostKernel()) {
        // Read first: `isCurrent` then detects a change during the rest of the work.
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

    /// Returns true if `directory` is one of the own groups or above one, regardless of its path.
    package func contains(_ directory: GroupDirectory) -> Bool { forbidden.contains(directory.identity) }

    /// True if the supervisor is still in the same groups. Allocates nothing.
    package var isCurrent: Bool { membership.withUnsafeBytes { plimsoll_membership_is($0.baseAddress, $0.count) != 0 } }
}
