import Plimsoll
import PlimsollLifecycle
import PlimsollLinux
import Synchronization

/// Reports the state of the process to the service manager with the protocol of `Type=notify`: readiness, watchdog, a
/// status line, and extensions of the stop timeout.
final class ServiceManagerLink: Sendable {
    private let manager: ResourceManager
    private let serviceManager: ServiceManager
    private let problem: @Sendable (ServiceManagerError) -> Void
    private struct Sent {
        /// The last status line that was sent.
        var line = ""
        /// Messages that could not be sent, to be sent again with the next message. The queue was full, or the service
        /// manager was starting again.
        var unsent: [String] = []
    }

    /// Held while a line is built and sent, so that no line overtakes a newer one.
    private let sent = Mutex(Sent())
    /// Back-off between attempts to send `WATCHDOG=1` while the queue is full. A missed watchdog message has the
    /// process killed.
    private static let pauses: [Duration] = [.milliseconds(5), .milliseconds(20), .milliseconds(80)]
    private let parker = Parker()

    /// Creates a link.
    ///
    /// - Parameter problem: called with each failed notification.
    init(
        _ manager: ResourceManager, _ serviceManager: ServiceManager,
        problem: @escaping @Sendable (ServiceManagerError) -> Void
    ) {
        (self.manager, self.serviceManager, self.problem) = (manager, serviceManager, problem)
    }

    /// Interval between calls of `poll`. A watchdog needs a message at twice its configured rate.
    var interval: Duration { min(.seconds(1), serviceManager.watchdogInterval.map { $0 / 2 } ?? .seconds(1)) }

    func begin() {
        manager.onStopTimeoutExtension { [self] duration in report(Self.extend(duration)) }
        // Wait for the first reading, about a millisecond. A client that starts the service and asks for status then
        // gets a complete answer.
        manager.lifecycle.whenLaunched { [self] in
            manager.whenFirstTurnIsOver { [self] in report("READY=1") }
        }
    }

    /// Reports that a shutdown has begun, to end within `budget`.
    func stopping(within budget: Duration) {
        // Other services drain before tasks are waited for. The service manager's timeout may end within that time.
        if manager.tasksStatus.running > 0 { report("STOPPING=1", Self.extend(budget)) } else { report("STOPPING=1") }
    }

    /// Extends the stop timeout by `duration` from now, plus a second for the end of the process.
    private static func extend(_ duration: Duration) -> String {
        "EXTEND_TIMEOUT_USEC=\((duration + .seconds(1)).inNanoseconds / 1000)"
    }

    /// Sends the watchdog message if the manager's loop is alive, and the status line if it has changed.
    func poll() {
        if serviceManager.watchdogInterval != nil, manager.isAlive { complaining { sayAlive() } }
        report()
    }

    /// Sends `words` and the status line. Without words, sends only a changed line.
    private func report(_ words: String...) {
        complaining {
            sent.withLock { sent in
                let line = line
                guard sent.line != line || !words.isEmpty || !sent.unsent.isEmpty else { return nil }
                // Only the newest message of each kind counts, for example `EXTEND_TIMEOUT_USEC=`.
                let all =
                    sent.unsent.filter { old in !words.contains { $0.prefix { $0 != "=" } == old.prefix { $0 != "=" } }
                    } + words
                let failure = send(all + ["STATUS=\(line)"])
                if failure == nil { sent.line = line }
                sent.unsent = failure == nil ? [] : all
                // A message that is only delayed is not lost, and not a problem to report.
                return failure?.isBusy == true && !manager.isShuttingDown ? nil : failure
            }
        }
    }

    /// Sends the watchdog message with retries. Runs on the reporting thread, which may wait a little.
    private func sayAlive() -> ServiceManagerError? {
        var failure = send(["WATCHDOG=1"])
        for pause in Self.pauses where failure?.isBusy == true {
            parker.park(atMost: pause)
            failure = send(["WATCHDOG=1"])
        }
        return failure
    }

    private func send(_ lines: [String]) -> ServiceManagerError? {
        do { try serviceManager.notify(lines.joined(separator: "\n")) } catch { return error }
        return nil
    }

    /// Calls `problem` with the failure of `body`. `problem` is code of the caller, so no lock is held.
    private func complaining(_ body: () -> ServiceManagerError?) { if let failure = body() { problem(failure) } }

    private var line: String {
        // Reads only the parts of the status that call no purgeable: this runs each second.
        let lifecycle = manager.lifecycle, tasks = manager.tasksStatus
        let state = lifecycle.readiness.reason.map { printable($0, atMost: 200) } ?? "\(lifecycle.state)"
        var line = manager.isShuttingDown ? "shutting down" : state
        if let memory = manager.memoryStatus {
            line +=
                "; memory \(manager.level), \(ByteCount(memory.usageBytes))"
                + (memory.limitBytes.map { " of \(ByteCount($0))" } ?? "")
        }
        guard tasks.running > 0 else { return line }
        let named = tasks.oldest.prefix(3).map { task in
            let name = printable(task.name, atMost: 64)
            guard let (completed, total) = task.progress else { return name }
            // The application sets the counts: any numbers are possible.
            return "\(name) \(Int(min(1, max(0, Double(completed) / Double(total))) * 100)) %"
        }
        return line + "; \(tasks.running) background task\(tasks.running == 1 ? "" : "s"): "
            + named.joined(separator: ", ")
            + (tasks.running > named.count ? ", …" : "")
    }
}
