import CSystemCallKiller
import Foundation
import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollSupervisor

/// Kills a supervisor at every system call, and checks the units and the successor.
///
/// The supervisor is killed with SIGKILL at the nth system call of a phase. No unit may then stay frozen or
/// throttled, even if no supervisor follows. Once another supervisor has started, no unit may be limited, or ended
/// without a request. Each unit must then run exactly once.
struct KillAnywhere {
    /// Program that contains `_fleet`.
    var program = ChildProcess.itself
    /// Longest time that a unit may stay as left by the killed supervisor.
    var bound = Duration.seconds(5)

    /// One kill and the outcome.
    struct Point {
        var phase: KillPhase
        var nth: Int
        /// Number of the system call that was not carried out; `nil` if the phase was over before.
        var call: Int?
        var problems: [String] = []
    }

    /// Error if no thread can be traced here.
    struct Refusal: Error { var reason: String }

    /// Kills at the `nth` system call of `phase`, counted from 1.
    func kill(_ phase: KillPhase, at nth: Int) throws -> Point {
        let name = "\(phase.rawValue)-\(nth)"
        return try ScratchDirectory.with(name) { directory in
            let fleet = FleetGroups(prefix: "plimsoll-\(getpid())-\(name)", directory: directory)
            defer { fleet.clear() }
            let run = KillRun(phase: phase, program: program, fleet: fleet, directory: directory, bound: bound)
            return try run.play(nth)
        }
    }
}

/// One killed supervisor, its predecessor and successor, and the observations.
private final class KillRun {
    let phase: KillPhase
    let program: String
    let fleet: FleetGroups
    let directory: String
    let bound: Duration
    private var problems: [String] = []

    init(phase: KillPhase, program: String, fleet: FleetGroups, directory: String, bound: Duration) {
        (self.phase, self.program, self.fleet, self.directory, self.bound) = (phase, program, fleet, directory, bound)
    }

    private var units: [String] { phase.units(.next, directory: directory).map(\.name) }

    func play(_ nth: Int) throws -> KillAnywhere.Point {
        if phase == .takeOver { try leaveSomething() }
        let subject = try begin(.subject)
        defer { subject.end(within: .zero) }
        guard let thread = phase.thread.map({ FleetGroups.thread($0, of: subject.pid) }) ?? subject.pid else {
            throw Failure.failed("\(phase.rawValue): there is no such thread")
        }
        let call = kill_thread_at_system_call(subject.pid, thread, subject.input, nth)
        if call < -2 {
            throw KillAnywhere.Refusal(
                reason: "cannot trace a thread here: \(String(cString: strerror(Int32(-1000 - call))))")
        }
        let ending = subject.waitForEnd()
        if call == -2 { problems.append("the supervisor ended by itself: \(ending)") }
        checkAlone()
        try checkNext()
        if !problems.isEmpty, let said = ControlFile.text(directory + "/problems") {
            problems.append("the supervisors reported: \(said)")
        }
        return .init(phase: phase, nth: nth, call: call >= 0 ? call : nil, problems: problems)
    }

    private func begin(_ part: FleetPart) throws -> ChildProcess {
        let child = try ChildProcess(
            program,
            [
                "plimsoll-bench", "_fleet", "--directory", directory, "--prefix", fleet.prefix, "--phase",
                phase.rawValue,
                "--part", part.rawValue,
            ], readsOutput: true, endsWithParent: true)
        let deadline = SteadyClock.now + bound * 6
        while child.output?.lines().contains("ready") != true {
            guard child.poll() == nil, SteadyClock.now < deadline else {
                child.end(within: .zero)
                throw Failure.failed(
                    "\(phase.rawValue): the \(part.rawValue) supervisor did not start: \(child.ending.map { "\($0)" } ?? "")"
                )
            }
            SteadyClock.sleep(.milliseconds(1))
        }
        return child
    }

    /// Prepares a state to take over: three units, one frozen and one throttled, as if left by a supervisor that was
    /// killed together with its guard.
    private func leaveSomething() throws {
        let former = try begin(.former)
        former.signal(SIGKILL)
        former.waitForEnd()
        try waitFor("the guard has ended") { FleetGroups.processes(with: directory).isEmpty }
        if let parent = fleet.root.parents[.unified] {
            try? ControlFile.write("1", to: "\(parent)/\(fleet.prefix)-batch/cgroup.freeze")
        }
        if let parent = fleet.root.parents[.cpu] {
            try? ControlFile.write("10000", to: "\(parent)/\(fleet.prefix)-web/cpu.cfs_quota_us")
        }
    }

    private func waitFor(_ what: String, _ condition: () -> Bool) throws {
        guard holds(condition) else { throw Failure.failed("\(phase.rawValue): not within \(bound): \(what)") }
    }

    /// Returns true if the condition becomes true within the bound.
    private func holds(_ condition: () -> Bool) -> Bool {
        let deadline = SteadyClock.now + bound
        while !condition() {
            guard SteadyClock.now < deadline else { return false }
            SteadyClock.sleep(.milliseconds(1))
        }
        return true
    }

    private func expect(_ what: String, _ condition: () -> Bool) {
        if !holds(condition) { problems.append(what) }
    }

    // MARK: - Without a successor

    private func checkAlone() {
        // Only a successor can know of a freeze by the harness itself.
        guard phase != .takeOver else { return }
        for unit in ["web", KillPhase.subject] {
            expect("\(unit) stays frozen while no supervisor runs") { !fleet.isFrozen(unit) }
            expect("\(unit) stays throttled while no supervisor runs") { !fleet.isThrottled(unit) }
        }
        expect("a guard outlives its supervisor") { FleetGroups.processes(with: directory).isEmpty }
    }

    // MARK: - With a successor

    private func checkNext() throws {
        let next: ChildProcess
        do { next = try begin(.next) } catch let failure as Failure {
            problems.append(failure.reason)
            return
        }
        defer { next.end(within: .zero) }
        for unit in units {
            expect("\(unit) stays frozen") { !fleet.isFrozen(unit) }
            expect("\(unit) stays throttled") { !fleet.isThrottled(unit) }
            expect("\(unit) stays limited") { !fleet.isLimited(unit) }
            expect("\(unit) is there \(fleet.processes(unit).count) times") { fleet.processes(unit).count == 1 }
            // A process writes its number a moment after its start.
            expect("the running process of \(unit) is not the last one started") {
                FleetGroups.starts(of: unit, in: directory).last.map(FleetGroups.isRunning) ?? false
            }
        }
        for unit in [KillPhase.subject, KillPhase.leftover] where !units.contains(unit) {
            let starts = FleetGroups.starts(of: unit, in: directory)
            expect("\(unit) is an orphan") { !starts.contains(where: FleetGroups.isRunning) }
        }
        for unit in units { count(unit) }
        let seen = units.map { FleetGroups.starts(of: $0, in: directory) }
        guard next.end(within: bound * 2) == .exited(0) else {
            problems.append("the next supervisor ended with an error")
            return
        }
        if seen != units.map({ FleetGroups.starts(of: $0, in: directory) }) {
            problems.append("a unit was started once more")
        }
        let all = ["web", KillPhase.subject, KillPhase.leftover]
        for unit in all {
            let starts = FleetGroups.starts(of: unit, in: directory)
            expect("\(unit) outlives the end of all units") { !starts.contains(where: FleetGroups.isRunning) }
        }
        expect("groups remain: \(fleet.names)") { fleet.names.isEmpty }
    }

    /// Checks that a unit was taken over, or restarted for a reason.
    private func count(_ unit: String) {
        let starts = FleetGroups.starts(of: unit, in: directory)
        let running = starts.filter(FleetGroups.isRunning)
        if running.count != 1 || running.last != starts.last {
            problems.append("of the processes \(starts) of \(unit), \(running) run")
        }
        // The journal records a decided end before any action.
        let journal = ControlFile.text(directory + "/journal") ?? ""
        let isAsked = journal.contains(#""unit":"\#(unit)","action":"end""#)
        let excused = (phase == .restart && unit == "web" || phase == .stop || isAsked) ? 1 : 0
        if starts.count - 1 > excused {
            problems.append("\(unit) was ended without a request, or started twice: \(starts)")
        }
    }
}
