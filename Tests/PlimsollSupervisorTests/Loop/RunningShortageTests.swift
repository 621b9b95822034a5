import CPlimsollSupervisor
import Glibc
import Plimsoll
import PlimsollLinux
import PlimsollTesting
import TestSupport
import Testing

@testable import PlimsollSupervisor

@Suite(.serialized, .needs(Workbench.hasFreezer && Workbench.hasCharge, "no version 2 freezer, or no charges, here"))
struct RunningShortageTests {
    /// The path of this package's own program, beside the tests: a service with a link to its supervisor.
    static let program: String? = {
        let path = RunningFleet.target(of: "/proc/self/exe")
        let program = path.split(separator: "/").dropLast().reduce("") { "\($0)/\($1)" } + "/plimsoll"
        return access(program, X_OK) == 0 ? program : nil
    }()

    private func trio() -> [ServiceUnit] {
        [
            .shell("web"), .shell("index") { ($0.role, $0.importance) = (.background, 800) },
            .shell("hog") { ($0.role, $0.importance) = (.background, 100) },
        ]
    }

    private func areRunning(_ fleet: RunningFleet, _ count: Int) -> Bool {
        fleet.supervisor.reports.count == count && fleet.supervisor.reports.allSatisfy { $0.state == .running }
    }

    /// True if each decision has exactly one outcome.
    private func hasOneOutcomeEach(_ fleet: RunningFleet) -> Bool {
        let records = fleet.records
        return Set(records.map(\.action)).allSatisfy { action in
            let those = records.filter { $0.action == action }
            return those.count { $0.result == nil } == those.count { $0.result != nil }
        }
    }

    @Test func `C77 C90 a background unit is notified, frozen and ended before any foreground unit is touched`() async throws {
        let fleet = try RunningFleet(trio()) { ($0.policy.leaveTime, $0.audit) = (.milliseconds(50), $0.directory + "/journal") }
        #expect(await fleet.waits { areRunning(fleet, 3) })
        // A process that connects there receives what the unit receives.
        let watcher = Fixture.connect(fleet.directory.path + "/hog.pressure")
        defer { close(watcher) }
        #expect(await fleet.waits { fleet.report("hog")?.isWarnable ?? false })
        fleet.push()
        #expect(await fleet.waits { fleet.state("hog") == .stopped && fleet.state("index") == .stopped })
        #expect(Fixture.received(watcher)?.hasPrefix("critical\n") == true)
        let hog = fleet.decisions("hog")
        let order: [UnitAction.Kind] = [.background, .suspend, .end]
        #expect(hog.map(\.kind).filter(order.contains) == order, "\(hog)")
        #expect(hog.contains(.resume(.ending)))
        #expect(fleet.state("web") == .running && !fleet.decisions("web").contains { $0.kind != .warn && $0.kind != .release })
        #expect(await fleet.stop() && hasOneOutcomeEach(fleet))
    }

    @Test func `limits that kept a leaving unit small are lifted for the next process`() async throws {
        let fleet = try RunningFleet(trio()) { $0.policy.leaveTime = .milliseconds(50) }
        #expect(await fleet.waits { areRunning(fleet, 3) })
        let before = fleet.memoryLimit("hog")
        fleet.push()
        #expect(await fleet.waits { fleet.state("hog") == .stopped })
        #expect(fleet.decisions("hog").contains(.resume(.ending)))
        #expect(before != nil && fleet.memoryLimit("hog") == before)
        #expect(await fleet.stop())
    }

    @Test(arguments: [[Hierarchy.memory, .freezer], [.memory], []])
    func `K36 without notices of the kernel, the supervisor polls`(hierarchies: [Hierarchy]) async throws {
        let root = Workbench.root(version1: hierarchies)
        let fleet = try RunningFleet(trio(), root: root) { $0.policy.leaveTime = .milliseconds(50) }
        #expect(await fleet.waits { areRunning(fleet, 3) })
        fleet.push()
        #expect(await fleet.waits { fleet.state("hog") == .stopped && fleet.state("index") == .stopped })
        #expect(fleet.decisions("hog").map(\.kind).contains(.suspend) && fleet.state("web") == .running)
        #expect(await fleet.stop() && hasOneOutcomeEach(fleet))
    }

    @Test(.needs(program != nil, "the program is not built"))
    func `C75 a ready service is frozen at once, and killed while frozen after a save`() async throws {
        let directory = Fixture.Directory()
        let command = [Self.program ?? "", "_unit", "--name", "hog", "--directory", directory.path, "--size", "8388608"]
        var hog = ServiceUnit(name: "hog", origin: .command(command))
        (hog.role, hog.restart) = (.background, .never)
        // The test ends before such a leave time: the freeze follows from the service's own report.
        let fleet = try RunningFleet([.shell("web"), hog]) { $0.policy.leaveTime = .seconds(3600) }
        #expect(await fleet.waits { fleet.report("hog")?.isWarnable ?? false })
        fleet.push()
        #expect(await fleet.waits { fleet.records.contains { $0.action == .suspend && $0.result?.failure == nil && $0.result != nil } })
        #expect(await fleet.waits { fleet.state("hog") == .stopped })
        #expect(fleet.records.contains { $0.action == .suspend && $0.reason == "the unit is ready to be suspended" })
        #expect(fleet.decisions("hog").contains(.end(.killSuspended)), "\(fleet.decisions("hog"))")
        #expect(await fleet.stop() && hasOneOutcomeEach(fleet))
        for file in RunningFleet.names(in: directory.path) {
            for inner in RunningFleet.names(in: "\(directory.path)/\(file)") { unlink("\(directory.path)/\(file)/\(inner)") }
            if unlink("\(directory.path)/\(file)") != 0 { rmdir("\(directory.path)/\(file)") }
        }
    }

    @Test(.needs(program != nil, "the program is not built"))
    func `a service whose ladder reaches suspend is frozen by the linked supervisor`() async throws {
        let directory = Fixture.Directory()
        let command = [
            Self.program ?? "", "_unit", "--name", "job", "--directory", directory.path, "--size", "1048576", "--suspend-after", "10",
        ]
        var job = ServiceUnit(name: "job", origin: .command(command))
        (job.role, job.restart) = (.background, .never)
        // Patience counts readings, and an announcement counts for one reading. So the supervisor announces again and
        // again.
        let fleet = try RunningFleet([.shell("web"), job]) {
            ($0.policy.leaveTime, $0.policy.noticeRest, $0.policy.noticeSpacing) = (.seconds(3600), .milliseconds(1), .milliseconds(1))
        }
        #expect(await fleet.waits { fleet.report("job")?.isWarnable ?? false })
        // On its own, the supervisor sends no unit to the background at a warning. The service is told, and its ladder
        // asks.
        fleet.push(0.85)
        func records() -> [AuditRecord] { fleet.records.filter { $0.unit == "job" && ($0.action == .background || $0.action == .suspend) } }
        #expect(await fleet.waits { records().contains { $0.action == .suspend && $0.result != nil && $0.result?.failure == nil } })
        let reasons = records().filter { $0.result == nil }.map(\.reason)
        #expect(Array(reasons.prefix(2)) == ["the unit requests suspension: its own memory is short", "the unit is ready to be suspended"])
        #expect(await fleet.stop())
        for file in RunningFleet.names(in: directory.path) {
            for inner in RunningFleet.names(in: "\(directory.path)/\(file)") { unlink("\(directory.path)/\(file)/\(inner)") }
            if unlink("\(directory.path)/\(file)") != 0 { rmdir("\(directory.path)/\(file)") }
        }
    }

    /// Returns a fleet in which `hog` is frozen, and memory is not short any more.
    private func frozen(_ change: @escaping (inout Supervisor.Options) -> Void = { _ in }) async throws -> RunningFleet {
        let fleet = try RunningFleet(trio()) {
            // Memory is free again before the unit would be ended: the test reports that at the order to freeze.
            ($0.policy.leaveTime, $0.policy.leastReclaim) = (.milliseconds(50), .zero)
            change(&$0)
        }
        #expect(await fleet.waits { areRunning(fleet, 3) })
        let source = fleet.source
        fleet.supervisor.onRecord { record in
            if record.unit == "hog", record.action == .suspend, record.result == nil { source.push(usage: .zero, limit: .gibibytes(1)) }
        }
        fleet.push()
        let path = try #require(fleet.group("hog")) + "/cgroup.events"
        #expect(await fleet.waits { ((try? GroupText.read(path).get()).map { String(decoding: $0, as: UTF8.self) } ?? "").contains("frozen 1") })
        return fleet
    }

    @Test func `T32 a killed guard is replaced by another guard`() async throws {
        let fleet = try RunningFleet(trio())
        #expect(await fleet.waits { areRunning(fleet, 3) && fleet.guardian != nil })
        let first = try #require(fleet.guardian)
        kill(first, SIGKILL)
        #expect(await fleet.waits { fleet.guardian.map { $0 != first } ?? false })
        #expect(await fleet.stop() && fleet.problems.isEmpty, "\(fleet.problems)")
    }

    @Test func `K33 stopping thaws and ends frozen units`() async throws {
        let fleet = try await frozen()
        #expect(await fleet.stop() && fleet.problems.isEmpty, "\(fleet.problems)")
    }

    @Test func `C91 a reload changes the policy: a frozen unit need not wait for room as long as before`() async throws {
        let fleet = try await frozen()
        #expect(fleet.state("hog") != .running)
        var policy = fleet.supervisor.options.policy
        policy.roomHold = .zero
        fleet.supervisor.reload(trio(), policy: policy)
        #expect(await fleet.waits { areRunning(fleet, 3) })
        #expect(fleet.decisions("hog").contains(.resume(.room)))
        #expect(await fleet.stop())
    }

    @Test func `T32 a frozen unit is thawed for the next supervisor`() async throws {
        let first = try await frozen { $0.leavesUnits = true }
        let path = try #require(first.group("hog")) + "/cgroup.events"
        first.supervisor.stop()
        #expect(await first.waits { first.isOver })
        #expect(String(decoding: try GroupText.read(path).get(), as: UTF8.self).contains("frozen 0"))
        let next = try RunningFleet(trio(), after: first)
        #expect(await next.waits { areRunning(next, 3) })
        #expect(await next.stop())
    }

    @Test func `a journal that cannot be written is reported once, and does not stop the supervisor`() async throws {
        let fleet = try RunningFleet(trio()) { ($0.audit, $0.policy.isDryRun) = ("/dev/full", true) }
        #expect(await fleet.waits { areRunning(fleet, 3) })
        fleet.push()
        #expect(await fleet.waits { fleet.records.count > 1 })
        #expect(await fleet.waits { fleet.problems.contains("cannot write the journal: No space left on device") })
        #expect(await fleet.stop())
        #expect(fleet.problems.count { $0.contains("journal") } == 1, "\(fleet.problems)")
    }

    @Test func `a unit killed from outside is started again`() async throws {
        let fleet = try RunningFleet([.shell("web") { $0.restart = .onFailure }])
        #expect(await fleet.waits { areRunning(fleet, 1) && !fleet.text("web.process").isEmpty })
        let first = try #require(Int32(fleet.text("web.process").prefix { $0 != " " }))
        kill(first, SIGKILL)
        #expect(await fleet.waits { Int32(fleet.text("web.process").prefix { $0 != " " }).map { $0 != first } ?? false })
        #expect(await fleet.stop())
    }

    @Test func `a dry run reports decisions and touches no unit`() async throws {
        let fleet = try RunningFleet(trio()) { ($0.policy.isDryRun, $0.policy.leaveTime) = (true, .zero) }
        #expect(await fleet.waits { areRunning(fleet, 3) })
        fleet.push()
        #expect(await fleet.waits { fleet.records.contains { $0.action == .background } })
        #expect(fleet.records.allSatisfy { $0.isDryRun && $0.result == nil } && areRunning(fleet, 3))
        #expect(await fleet.stop())
    }
}
