import CPlimsollSupervisor
import CSystemCallFaults
import Glibc
import Plimsoll
import PlimsollLinux
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import PlimsollSupervisor

/// A supervisor at work on a thread of its own, with units in real groups and a shortage that the test makes.
final class RunningFleet: Sendable {
    let directory: Fixture.Directory
    let source = ScriptedPressureSource()
    let supervisor: Supervisor
    private let received = Mutex<[AuditRecord]>([])
    private let reported = Mutex<[String]>([])
    private let over = Mutex(false)
    /// Processes that a former supervisor of this process has started, and that no other thread waits for. As a zombie,
    /// such a process would hide the end of exit tests.
    private let inherited: [Int32]

    /// - Parameters:
    ///   - former: A fleet whose directory and groups the new one takes over.
    ///   - isFaulted: True if calls of the supervisor's thread can be made to fail.
    init(
        _ units: [ServiceUnit], after former: RunningFleet? = nil, root: GroupRoot? = nil, isFaulted: Bool = false,
        _ change: (inout Supervisor.Options) -> Void = { _ in }
    ) throws {
        directory = former?.directory ?? Fixture.Directory()
        inherited = ProcessNote.units(in: directory.path).compactMap { [path = directory.path] in ProcessNote(path, $0).read()?.pid }
        var options = Supervisor.Options(directory: directory.path)
        options.prefix = former?.supervisor.options.prefix ?? root?.prefix ?? Workbench.prefix()
        // Decisions that no test checks must not happen meanwhile.
        (options.policy.roomHold, options.policy.foregroundPatience) = (.seconds(3600), .seconds(3600))
        // On a busy machine a freeze may take longer than the default.
        options.policy.answerTime = .seconds(3600)
        options.policy.grace = .milliseconds(500)
        // A late guard is replaced, and a suspension that fails meanwhile is not repeated for long.
        options.guardPatience = .seconds(20)
        change(&options)
        supervisor = try Supervisor(units, options, source: source, root: root)
        supervisor.onRecord { [weak self] record in self?.received.withLock { $0.append(record) } }
        supervisor.onProblem { [weak self] problem in self?.reported.withLock { $0.append(problem) } }
        let isStarted = Thread.start("supervisor") { [self] in
            if isFaulted { faults_join() }
            do { try supervisor.run() } catch { reported.withLock { $0.append("\(error)") } }
            over.withLock { $0 = true }
        }
        if !isStarted { throw SupervisorError("no thread") }
    }

    var records: [AuditRecord] { received.withLock { $0 } }
    var problems: [String] { reported.withLock { $0 } }
    var isOver: Bool { over.withLock { $0 } }
    func report(_ name: String) -> UnitReport? { supervisor.reports.first { $0.name == name } }
    func state(_ name: String) -> UnitState? { report(name)?.state }
    /// Returns the unit's first process, as noted for the next supervisor; `nil` while there is none.
    func process(_ name: String) -> Int32? { state(name) == .running ? Int32(text("\(name).process").prefix { $0 != " " }) : nil }
    func decisions(_ name: String) -> [UnitAction] { records.filter { $0.unit == name && $0.result == nil }.map(\.action) }

    /// Returns the path of the unit's version 2 group, where version 2 exists.
    func group(_ name: String) -> String? {
        supervisor.root.parents[.unified].map { "\($0)/\(supervisor.options.prefix)-\(name)" }
    }

    /// Returns the memory limit of the unit's group, as the kernel writes the limit.
    func memoryLimit(_ name: String) -> String? {
        let files = [(Hierarchy.memory, "memory.limit_in_bytes"), (.unified, "memory.max")]
        return files.lazy.compactMap { [supervisor] hierarchy, file in
            supervisor.root.parents[hierarchy].flatMap { try? GroupText.read("\($0)/\(supervisor.options.prefix)-\(name)/\(file)").get() }
        }.first.map { String(decoding: $0, as: UTF8.self) }
    }

    /// True if none of this fleet's groups is left.
    var hasNoGroups: Bool {
        supervisor.root.parents.values.allSatisfy { parent in !Self.names(in: parent).contains { $0.hasPrefix(supervisor.options.prefix + "-") } }
    }

    /// Returns the text of a file that a unit's script has written.
    func text(_ file: String) -> String { (try? GroupText.read("\(directory.path)/\(file)").get()).map { String(decoding: $0, as: UTF8.self) } ?? "" }
    /// Returns a file's whole line as a number.
    func pid(_ file: String) -> Int32? { text(file).hasSuffix("\n") ? Int32(text(file).dropLast()) : nil }

    /// Waits until `condition` holds. The limit only ends a hang.
    func waits(_ condition: () -> Bool, sourceLocation: SourceLocation = #_sourceLocation) async -> Bool {
        await until("the fleet's state (\(story))", limit: Workbench.limit, sourceLocation: sourceLocation, condition)
    }

    /// States, problems and last records of the units so far.
    private var story: String {
        let states = supervisor.reports.map { "\($0.name) \($0.state)" }, last = records.suffix(5).map { "\($0)" }
        return "\(states.joined(separator: ", ")); problems: \(problems.suffix(5)); last records: \(last)"
    }

    /// Reports that all memory is in use, or the given share.
    func push(_ share: Double = 1) { source.push(usage: .gibibytes(1) * share, limit: .gibibytes(1)) }

    /// Stops the supervisor and removes the written files. Returns true if the supervisor ended and left no groups.
    func stop() async -> Bool {
        supervisor.stop()
        guard await waits({ isOver }) else { return false }
        for pid in inherited { waitpid(pid, nil, WNOHANG) }
        clear()
        return hasNoGroups
    }

    /// Removes the written files.
    func clear() { for name in Self.names(in: directory.path) { unlink("\(directory.path)/\(name)") } }

    /// The process that thaws this fleet's units if the supervisor ends: only that process holds files of the units'
    /// groups.
    var guardian: Int32? { guardian(of: [""]) }

    /// Returns the guard, once the guard holds files of the groups of all these units.
    ///
    /// Just after the fork the guard has copies of all files of this process. The guard is ready once the copies are
    /// closed: then no event queue is left.
    func guardian(of units: [String]) -> Int32? {
        let groups = units.map { "/\(supervisor.options.prefix)-\($0)" }
        return Self.names(in: "/proc").lazy.compactMap { Int32($0) }.first { pid in
            guard ProcessTable.stat(of: pid)?.parent == getpid() else { return false }
            let files = Self.names(in: "/proc/\(pid)/fd").map { Self.target(of: "/proc/\(pid)/fd/\($0)") }
            return groups.allSatisfy { group in files.contains { $0.contains(group) } } && !files.contains { $0.contains("eventpoll") }
        }
    }

    /// Returns the target of a symbolic link.
    static func target(of link: String) -> String {
        withUnsafeTemporaryAllocation(of: UInt8.self, capacity: 4096) { target in
            guard let start = target.baseAddress else { return "" }
            let length = readlink(link, UnsafeMutableRawPointer(start).assumingMemoryBound(to: CChar.self), target.count)
            return String(decoding: target.prefix(max(0, length)), as: UTF8.self)
        }
    }

    static func names(in directory: String) -> [String] {
        guard let stream = opendir(directory) else { return [] }
        defer { closedir(stream) }
        var names: [String] = []
        while let entry = readdir(stream) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) { $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) } }
            if name != ".", name != ".." { names.append(name) }
        }
        return names
    }

    static func isRunning(_ pid: Int32) -> Bool { ProcessTable.stat(of: pid).map { !$0.isOver } ?? false }
}

extension ServiceUnit {
    static func shell(_ name: String, _ script: String = "exec sleep 1000", _ change: (inout ServiceUnit) -> Void = { _ in }) -> ServiceUnit {
        var unit = ServiceUnit(name: name, origin: .command(["/bin/sh", "-c", script]))
        unit.restart = .never
        change(&unit)
        return unit
    }
}
