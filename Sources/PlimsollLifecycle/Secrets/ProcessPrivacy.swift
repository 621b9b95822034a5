import CPlimsollMemory
import CPlimsollProcess
package import Plimsoll

/// Protection of this process against inspection by other processes.
public enum ProcessPrivacy {
    /// Allows or forbids core dumps of this process, and attaching by other processes of the same user
    /// (`PR_SET_DUMPABLE`, prctl(2)).
    ///
    /// While forbidden, the files below `/proc/self` belong to root. An unprivileged process can then no longer open
    /// those that only their owner may read, such as `environ` and `mem`. An `exec` allows dumps again.
    ///
    /// - Returns: true if the kernel accepted the setting.
    @discardableResult
    public static func setDumpable(_ isDumpable: Bool) -> Bool { plimsoll_set_dumpable(isDumpable) == 0 }

    /// True if the process may be dumped now.
    public static var isDumpable: Bool { plimsoll_is_dumpable() }

    /// The line `secrets` of the capabilities. Probed by allocating a secret.
    package static var signal: Capabilities.Signal {
        let dumps = isDumpable ? "the rest of the process may be dumped" : "the process writes no core dump"
        guard let slot = SecretArena.shared.take(1) else {
            return .init(
                "secrets", isLive: false, "no page can be mapped for them",
                remedy: "raise RLIMIT_AS or vm.max_map_count")
        }
        defer { SecretArena.shared.give(slot) }
        let isWhole = slot.protection.isSuperset(of: [.leftOutOfDumps, .zeroInChildren])
        return .init(
            "secrets", isLive: isWhole, "\(slot.protection); \(dumps)",
            remedy: isWhole
                ? (slot.protection.contains(.locked) ? nil : "raise RLIMIT_MEMLOCK so that they are never swapped out")
                : "run on Linux 4.14 or newer"
        )
    }
}
