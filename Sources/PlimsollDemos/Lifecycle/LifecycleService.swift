import Glibc
import Plimsoll
import PlimsollLifecycle
import PlimsollLinux
import Synchronization

/// The service of `demo lifecycle`: answers and counts requests, and reports life-cycle events.
final class LifecycleService: Sendable {
    let manager: ResourceManager
    let directory: String
    /// Number of requests answered, in this run and those before.
    let orders = Counter()

    var lifecycle: Lifecycle { manager.lifecycle }

    /// Creates the service.
    ///
    /// - Parameters:
    ///   - directory: directory of the service's state and configuration.
    ///   - allowance: time for tasks in the background.
    ///   - grace: time for tasks to stop.
    init(directory: String, allowance: Duration, grace: Duration) {
        self.directory = directory
        var policy = PressurePolicy.standard
        policy.backgroundAllowance = allowance
        policy.expirationGrace = grace
        manager = ResourceManager(source: LinuxPressureSource(), policy: policy, time: SteadyClock.timekeeper)
    }

    /// Sets everything up and runs until the task is cancelled.
    func run() async throws {
        let limiter = ConcurrencyLimiter("requests", limit: 16, waitingWhilePausedAtMost: .zero)
        lifecycle.pausables.add(limiter)
        let door = Door { [self] in
            (try? await limiter.run(waitingAtMost: .zero) { orders.add() }) != nil
        }
        let ticker = Ticker(
            "ticker", every: LifecycleDemo.period, inBackgroundEvery: LifecycleDemo.backgroundPeriod
        ) {
            LifecycleEvent(.tick, number: $0).emit()
        }
        lifecycle.pausables.add(ticker)
        preserveOrders()
        watchFile()
        let key = try keepKey()
        let (listener, lock) = try holdExclusively(door)
        lifecycle.onResume("gap") { context in
            var event = LifecycleEvent(.resumed, number: Int(lock.epoch), cause: context.gap?.kind.rawValue)
            event.microseconds = context.gap.map { Int($0.length.inNanoseconds / 1000) }
            event.emit()
        }
        lifecycle.onTerminate("report of the end") { _ in LifecycleEvent(.terminating).emit() }
        let steps = lifecycle.transitions
        let reporter = Task {
            for await step in steps {
                // A `Secret` has no hook for wiping: wiping must not depend on any other code.
                if step.from == .inactive, step.to == .background, key.isWiped { LifecycleEvent(.wiped).emit() }
                LifecycleEvent(LifecycleEvent.process, step.from, step.to, step.cause).emit()
                if step.to == .notRunning { break }
            }
        }

        try await lifecycle.launch()
        LifecycleEvent(.restored, number: orders.count, cause: lifecycle.previousRun?.rawValue).emit()
        try await lock.acquire()
        try await listener.acquire()
        await connectScene("tenant-42", .userRequest)
        await connectScene("archive", .systemRequest)
        try await manager.run()
        ticker.cancel()
        door.close()
        await reporter.value
    }

    private func connectScene(_ id: String, _ reason: LifecycleCause) async {
        let emit: @Sendable (LifecycleContext) -> Void = { LifecycleEvent(id, $0.from, $0.to, $0.cause).emit() }
        let scene = lifecycle.connectScene(id, reason: reason) { scene in
            scene.observe("event writer", onInactive: emit, onActive: emit, onBackground: emit, onForeground: emit)
        }
        await scene.connected()
        // A scene that comes up in the background calls no handlers on the way.
        if scene.state == .background { LifecycleEvent(id, .notRunning, .background, .launch).emit() }
    }

    /// Carries out a request of the demo.
    func take(_ request: LifecycleRequest) async throws {
        switch request {
        case .interrupt: try await lifecycle.interrupt()
        case .resume: try await lifecycle.endInterruption()
        case .background: try await lifecycle.enterBackground(cause: .operator)
        case .foreground: try await lifecycle.enterForeground(cause: .operator)
        case .task: beginExport()
        }
    }

    /// Begins work that takes longer than the background allowance.
    private func beginExport() {
        let name = "export", parts = 100
        Task {
            let done = Counter()
            try? await manager.withBackgroundTask(name) { task in
                LifecycleEvent(.began).emit()
                for part in 1...parts {
                    try await Task.sleep(for: .milliseconds(100))
                    task.progress(completed: part, total: parts)
                    done.set(part)
                }
            } onExpiration: { _, reason in
                LifecycleEvent(.expired, cause: reason.rawValue).emit()
            }
            LifecycleEvent(.ended, number: done.count).emit()
        }
    }
}
