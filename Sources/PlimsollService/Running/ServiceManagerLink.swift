import Plimsoll
import PlimsollLinux
import Synchronization

/// Tells the service manager how the process is, as `Type=notify` has it: ready, alive, a line for people, and how much longer its end takes.
final class ServiceManagerLink: Sendable {
    private let manager: ResourceManager
    private let serviceManager: ServiceManager
    private let problem: @Sendable (ServiceManagerError) -> Void
    private struct Told {
        /// The last line that it was told.
        var line = ""
        /// Words that its full queue had no room for, to be said again with the next.
        var unsaid: [String] = []
    }

    /// Held while a line is made and sent, so that none comes after a newer one.
    private let told = Mutex(Told())
    /// Pauses after which it is told again that the process is alive, where its queue is full: missing that has the process killed.
    private static let pauses: [Duration] = [.milliseconds(5), .milliseconds(20), .milliseconds(80)]
    private let parker = Parker()

    /// - Parameter problem: called with each thing that could not be told.
    init(_ manager: ResourceManager, _ serviceManager: ServiceManager, problem: @escaping @Sendable (ServiceManagerError) -> Void) {
        (self.manager, self.serviceManager, self.problem) = (manager, serviceManager, problem)
    }

    /// How often `look` is to be called: a service manager that watches wants to hear twice as often as it asks for.
    var interval: Duration { min(.seconds(1), serviceManager.watchdogInterval.map { $0 / 2 } ?? .seconds(1)) }

    func begin() {
        manager.onStopTimeoutExtension { [self] duration in tell(Self.extend(duration)) }
        // With the first reading, a matter of a millisecond: who starts the service and asks for its status finds it whole.
        manager.lifecycle.whenLaunched { [self] in
            manager.whenFirstTurnIsOver { [self] in tell("READY=1") }
        }
    }

    /// A shutdown has begun, to be over within `budget`.
    func stopping(within budget: Duration) {
        // Others drain before tasks are waited for, and the service manager's patience may end within that.
        if manager.tasksStatus.running > 0 { tell("STOPPING=1", Self.extend(budget)) } else { tell("STOPPING=1") }
    }

    /// From now on, and a little more: the process has still to end.
    private static func extend(_ duration: Duration) -> String { "EXTEND_TIMEOUT_USEC=\((duration + .seconds(1)).inNanoseconds / 1000)" }

    /// Says that the process is alive, if the manager's loop is, and what has changed.
    func look() {
        if serviceManager.watchdogInterval != nil, manager.isAlive { complaining { sayAlive() } }
        tell()
    }

    /// Says `words` and how things are; without words only if that is news.
    private func tell(_ words: String...) {
        complaining {
            told.withLock { told in
                let line = line
                guard told.line != line || !words.isEmpty || !told.unsaid.isEmpty else { return nil }
                // The newest of a kind holds: `EXTEND_TIMEOUT_USEC=`.
                let all = told.unsaid.filter { old in !words.contains { $0.prefix { $0 != "=" } == old.prefix { $0 != "=" } } } + words
                let failure = send(all + ["STATUS=\(line)"])
                if failure == nil { told.line = line }
                told.unsaid = failure?.isBusy == true ? all : []
                // What is said later is not lost, and no reason to complain.
                return failure?.isBusy == true && !manager.isShuttingDown ? nil : failure
            }
        }
    }

    /// On the reporting thread, which may wait a little.
    private func sayAlive() -> ServiceManagerError? {
        var failure = send(["WATCHDOG=1"])
        for pause in Self.pauses where failure?.isBusy == true {
            parker.park(atMost: pause)
            failure = send(["WATCHDOG=1"])
        }
        return failure
    }

    private func send(_ lines: [String]) -> ServiceManagerError? {
        do { try serviceManager.tell(lines.joined(separator: "\n")) } catch { return error }
        return nil
    }

    /// What is complained to is others' code, which no lock is held for.
    private func complaining(_ body: () -> ServiceManagerError?) { if let failure = body() { problem(failure) } }

    /// The state of things in a line.
    private var line: String {
        // Of the status only what asks no holder: this is looked at each second.
        let lifecycle = manager.lifecycle, tasks = manager.tasksStatus
        var line = manager.isShuttingDown ? "shutting down" : lifecycle.readiness.reason ?? "\(lifecycle.state)"
        if let memory = manager.memoryStatus {
            line += "; memory \(manager.level), \(ByteCount(memory.usageBytes))" + (memory.limitBytes.map { " of \(ByteCount($0))" } ?? "")
        }
        guard tasks.running > 0 else { return line }
        let named = tasks.oldest.prefix(3).map { task in
            let name = printable(task.name, atMost: 64)
            guard let completed = task.completed, let total = task.total, total > 0 else { return name }
            // Counts are the application's: any numbers.
            return "\(name) \(Int(min(1, max(0, Double(completed) / Double(total))) * 100)) %"
        }
        return line + "; \(tasks.running) background task\(tasks.running == 1 ? "" : "s"): " + named.joined(separator: ", ")
            + (tasks.running > named.count ? ", …" : "")
    }
}
