import ArgumentParser
import CSystemCallKiller
import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollSupervisor
import PlimsollTesting
import Synchronization

/// A supervisor of two units with scripted memory pressure, for a harness that kills the supervisor: see
/// `KillAnywhere`.
///
/// Prints `ready` when its phase can begin, begins at the line `go`, and marks the phase's end on its first thread.
/// Ends all units when its standard input ends.
struct FleetCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "_fleet", abstract: "Part of `plimsoll-bench hostile`.", shouldDisplay: false)

    @Option var directory: String
    @Option var prefix: String
    @Option var phase: KillPhase
    @Option var part: FleetPart

    func run() throws {
        try reportingFailure {
            let play = FleetPlay(phase, part, directory: directory, prefix: prefix)
            let driver = PlainThread { play.drive() }
            guard let driver else { throw Failure.failed("cannot start a thread") }
            driver.detach()
            if play.isHeld { play.hold() }
            let supervisor: Supervisor
            do { supervisor = try play.make() } catch { throw Failure.failed("\(error)") }
            do { try supervisor.run() } catch { throw Failure.failed("\(error)") }
            if part == .subject, phase.isUntilEnd { mark_phase_over(calling_thread()) }
        }
    }
}

/// The two threads of a `FleetCommand`: the supervisor's thread, and the thread that drives the supervisor.
private final class FleetPlay: Sendable {
    private let phase: KillPhase
    private let part: FleetPart
    private let directory: String
    private let prefix: String
    private let source = ScriptedPressureSource()
    private let first = calling_thread()
    private let supervisor = Mutex<Supervisor?>(nil)
    private let records = Mutex<[AuditRecord]>([])
    private let gate = PipeGate()

    init(_ phase: KillPhase, _ part: FleetPart, directory: String, prefix: String) {
        (self.phase, self.part, self.directory, self.prefix) = (phase, part, directory, prefix)
    }

    /// True if the first thread waits for `go` before making anything.
    var isHeld: Bool { part == .subject && phase.isFromStart }

    func hold() { gate.wait() }

    func make() throws -> Supervisor {
        var options = Supervisor.Options(directory: directory)
        (options.prefix, options.policy) = (prefix, phase.policy(part))
        options.audit = directory + "/journal"
        options.leavesUnits = part == .subject && phase == .leave
        let made = try Supervisor(phase.units(part, directory: directory), options, source: source)
        made.onProblem { [path = directory + "/problems"] problem in
            guard let file = fopen(path, "a") else { return }
            fputs("\(problem)\n", file)
            fclose(file)
        }
        made.onRecord { [self] record in
            records.withLock { $0.append(record) }
            // Free enough memory before a frozen unit would be ended, or once the throttle is on.
            let isEnough =
                phase == .throttle
                ? record.action == .throttle(true) && record.result != nil : record.action.kind == .reclaim
            if isEnough { source.push(usage: .zero, limit: .gibibytes(1)) }
        }
        supervisor.withLock { $0 = made }
        return made
    }

    // MARK: The driving thread

    func drive() {
        if isHeld {
            Output.line("ready")
            guard readLine() != nil else { exit(0) }
            gate.open()
            wait { areUp }
        } else {
            wait { areUp }
            Output.line("ready")
            guard part == .subject, readLine() != nil else { return end() }
            act()
        }
        // For phases that end with `run()`, the first thread marks the end itself.
        if !phase.isUntilEnd { mark_phase_over(phase.thread.flatMap { Self.thread($0) } ?? first) }
        end()
    }

    /// Waits for the end of standard input, then stops the supervisor: all units end with the process that started
    /// this one.
    private func end() {
        while readLine() != nil {}
        stop()
    }

    private func stop() { supervisor.withLock { $0 }?.stop() }

    private func act() {
        switch phase {
        case .start, .takeOver: break
        case .restart:
            let starts = self.starts("web")
            if let pid = starts.last { kill(pid, SIGKILL) }
            wait { self.starts("web").count > starts.count && areUp }
        case .guard:
            let old = guardian
            if let old { kill(old, SIGKILL) }
            wait { guardian.map { $0 != old } ?? false }
            // The new guard receives the state of the old one within this time.
            SteadyClock.sleep(.milliseconds(20))
        case .freeze, .reclaim:
            source.push(usage: .gibibytes(1), limit: .gibibytes(1))
            wait { has { $0.action == .resume(.room) && $0.result != nil } }
        case .throttle:
            source.push(usage: .gibibytes(1), limit: .gibibytes(1))
            wait { has { $0.action == .throttle(false) && $0.result != nil } }
        case .contain:
            source.push(usage: .gibibytes(1), limit: .gibibytes(1))
            wait { reports.contains { $0.name == KillPhase.subject && $0.state == .ending } }
        case .reload:
            supervisor.withLock { $0 }?.reload(phase.units(.next, directory: directory))
            wait { reports.map(\.name) == ["web"] }
        case .stop, .leave: stop()
        }
    }

    /// Waits for a condition. On a timeout, aborts the process, which the harness notices.
    private func wait(_ condition: () -> Bool) {
        let deadline = SteadyClock.now + .seconds(60)
        while !condition() {
            guard SteadyClock.now < deadline else {
                Output.error(
                    "\(Output.program): \(phase.rawValue) did not end: \(reports.map { "\($0.name) \($0.state)" })")
                kill(getpid(), SIGABRT)
                return
            }
            SteadyClock.sleep(.milliseconds(1))
        }
    }

    private var reports: [UnitReport] { supervisor.withLock { $0 }?.reports ?? [] }
    private func has(_ match: (AuditRecord) -> Bool) -> Bool { records.withLock { $0.contains(where: match) } }
    private func starts(_ unit: String) -> [Int32] { FleetGroups.starts(of: unit, in: directory) }

    private var areUp: Bool {
        let units = phase.units(part, directory: directory)
        let reports = reports
        return reports.count == units.count && reports.allSatisfy { $0.state == .running && !$0.isThrottled }
            && units.allSatisfy { !starts($0.name).isEmpty }
    }

    private var guardian: Int32? {
        FleetGroups.processes.first { pid in
            ControlFile.text("/proc/\(pid)/comm") == "plimsoll-guard\n"
                && (ControlFile.text("/proc/\(pid)/status")?.contains("\nPPid:\t\(getpid())\n") ?? false)
        }
    }

    private static func thread(_ name: String) -> pid_t? { FleetGroups.thread(name, of: getpid()) }
}

/// A gate that one thread waits for once, without spinning.
private final class PipeGate: Sendable {
    private let ends: (read: Int32, write: Int32)

    init() {
        var ends: [Int32] = [-1, -1]
        precondition(pipe(&ends) == 0, "no pipe")
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        self.ends = (ends[0], ends[1])
    }

    func open() { _ = write(ends.write, "x", 1) }

    func wait() {
        var byte: UInt8 = 0
        while read(ends.read, &byte, 1) < 0, errno == EINTR {}
    }
}
