import Glibc
import Plimsoll
import PlimsollLinux
import PlimsollTesting
import TestSupport
import Testing

@testable import PlimsollSupervisor

/// Kills the guard while units are frozen or throttled, and then the supervisor.
@Suite(.serialized, .needs(Workbench.hasFreezer && Workbench.hasCharge, "no version 2 freezer, or no charges, here"))
struct KilledGuardTests {
    /// A control file of a unit, and the content of that file when the unit is free.
    private struct Mark {
        let path: String
        let free: String

        var isFree: Bool { text == free }
        private var text: String { (try? GroupText.read(path).get()).map { String(decoding: $0, as: UTF8.self) } ?? "none" }

        init?(of unit: String, in root: GroupRoot, _ files: [(Hierarchy, String)]) {
            let paths = files.compactMap { hierarchy, file in root.parents[hierarchy].map { "\($0)/\(root.prefix)-\(unit)/\(file)" } }
            guard let path = paths.first(where: { access($0, F_OK) == 0 }) else { return nil }
            (self.path, free) = (path, (try? GroupText.read(path).get()).map { String(decoding: $0, as: UTF8.self) } ?? "")
        }
    }

    private static let freezers = [(Hierarchy.unified, "cgroup.freeze"), (.freezer, "freezer.state")]
    private static let quotas = [(Hierarchy.unified, "cpu.max"), (.cpu, "cpu.cfs_quota_us")]

    private static func root(_ prefix: String, isVersion1: Bool) -> GroupRoot {
        isVersion1 ? Workbench.root(version1: [.memory, .freezer], prefix: prefix) : GroupRoot(prefix: prefix)
    }

    /// Checks a condition in the exit test, which reports a failure only by the wrong exit.
    private static func must(_ condition: Bool) { precondition(condition) }

    /// Runs in a separate process, and kills that process at the end: one unit is frozen or throttled, the guard is
    /// killed, and the next guard has as many files as the killed one.
    private static func play(_ root: GroupRoot, isThrottled: Bool, _ directory: String) async throws {
        let job = ServiceUnit.shell("job") {
            ($0.role, $0.importance) = (.background, 100)
            if isThrottled { ($0.suspension, $0.allowance) = (.never, .milliseconds(1)) }
        }
        let fleet = try RunningFleet([.shell("web"), job], root: root) {
            $0.directory = directory
            ($0.policy.leaveTime, $0.policy.leastReclaim) = (isThrottled ? .seconds(3600) : .milliseconds(50), .zero)
        }
        // A killed process removes no files.
        rmdir(fleet.directory.path)
        let source = fleet.source, wanted = isThrottled ? UnitAction.throttle(true) : .suspend
        // No further decision is to affect the unit.
        fleet.supervisor.onRecord { if $0.action == wanted { source.push(usage: .zero, limit: .gibibytes(1)) } }
        must(await fleet.waits { ["web", "job"].allSatisfy { fleet.state($0) == .running } })
        guard let mark = Mark(of: "job", in: root, isThrottled ? quotas : freezers) else { preconditionFailure("no file") }
        fleet.push()
        must(await fleet.waits { fleet.records.contains { $0.action == wanted && $0.result != nil && $0.result?.failure == nil } })
        must(!mark.isFree && fleet.problems.isEmpty)
        func files(_ pid: Int32) -> Int { RunningFleet.names(in: "/proc/\(pid)/fd").count }
        guard let first = fleet.guardian else { preconditionFailure("no guard") }
        let count = files(first)
        kill(first, SIGKILL)
        must(await fleet.waits { fleet.guardian.map { $0 != first && files($0) == count } ?? false })
        must(!mark.isFree)
        kill(getpid(), SIGKILL)
    }

    /// True if the unit of a killed supervisor is free, seen from outside. Removes the remains of the fleet.
    private func isFree(_ root: GroupRoot, isThrottled: Bool, _ directory: String) async -> Bool {
        defer {
            for name in ["web", "job"] {
                if let group = try? root.make(name) { Workbench.clear(group) }
            }
            for name in RunningFleet.names(in: directory) { unlink("\(directory)/\(name)") }
        }
        let files = isThrottled ? Self.quotas : Self.freezers, free = ["0\n", "THAWED\n", "-1\n", "max 100000\n"]
        return await until("the job is free") { Mark(of: "job", in: root, files).map { free.contains($0.free) } ?? false }
    }

    @Test func `T32 the guard that replaces a killed guard thaws units frozen before`() async throws {
        let directory = Fixture.Directory(), path = directory.path, prefix = Workbench.prefix()
        await #expect(processExitsWith: .signal(SIGKILL)) { [path = path as String, prefix = prefix as String] in
            try await Self.play(Self.root(prefix, isVersion1: false), isThrottled: false, path)
        }
        #expect(await isFree(Self.root(prefix, isVersion1: false), isThrottled: false, path))
    }

    @Test(.needs(Workbench.hasVersion1Freezer, "no version 1 freezer here"))
    func `T32 the guard that replaces a killed guard thaws units of version 1's freezer`() async throws {
        let directory = Fixture.Directory(), path = directory.path, prefix = Workbench.prefix()
        await #expect(processExitsWith: .signal(SIGKILL)) { [path = path as String, prefix = prefix as String] in
            try await Self.play(Self.root(prefix, isVersion1: true), isThrottled: false, path)
        }
        #expect(await isFree(Self.root(prefix, isVersion1: true), isThrottled: false, path))
    }

    @Test(.needs(Workbench.found.capabilities["throttle"]!.isLive, "no processor quota here"))
    func `T32 C36 the guard that replaces a killed guard lifts earlier throttles`() async throws {
        let directory = Fixture.Directory(), path = directory.path, prefix = Workbench.prefix()
        await #expect(processExitsWith: .signal(SIGKILL)) { [path = path as String, prefix = prefix as String] in
            try await Self.play(Self.root(prefix, isVersion1: false), isThrottled: true, path)
        }
        #expect(await isFree(Self.root(prefix, isVersion1: false), isThrottled: true, path))
    }
}
