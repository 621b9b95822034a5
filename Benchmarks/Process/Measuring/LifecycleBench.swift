import Plimsoll
import PlimsollDemos
import PlimsollLifecycle
import PlimsollLinux
import Synchronization

/// Measures the life cycle's own cost: handlers that do nothing, scenes that hold nothing.
struct LifecycleBench {
    let rounds: Int
    let count: Int

    /// Returns the slowest of four transitions with `count` observers that have both pairs of handlers: the median of
    /// the rounds, in milliseconds.
    func transitions() async throws -> Double? {
        let manager = ResourceManager(source: LinuxPressureSource())
        let lifecycle = manager.lifecycle
        for number in 0..<count {
            lifecycle.observe(
                "observer-\(number)", onInactive: { _ in }, onActive: { _ in }, onBackground: { _ in },
                onForeground: { _ in })
        }
        try await lifecycle.launch()
        var worst: [Double] = []
        for _ in 0..<rounds {
            // An interruption around the stay in the background makes each step a separate request.
            let steps = [
                try await timed { try await lifecycle.interrupt() },
                try await timed { try await lifecycle.enterBackground(cause: .operator) },
                try await timed { try await lifecycle.enterForeground(cause: .operator) },
                try await timed { try await lifecycle.endInterruption() },
            ]
            worst.append(steps.max() ?? 0)
        }
        guard lifecycle.state == .active else {
            throw Failure.failed("the process is \(lifecycle.state) after the return, not active")
        }
        await lifecycle.terminate()
        return median(worst)
    }

    /// Returns the time into the background and back with `count` scenes in the foreground: the median of the rounds,
    /// in milliseconds.
    func scenes() async throws -> Double? {
        let manager = ResourceManager(source: LinuxPressureSource())
        let lifecycle = manager.lifecycle
        let scenes = (0..<count).map { lifecycle.connectScene("scene-\($0)", reason: .userRequest) }
        for scene in scenes { await scene.connected() }
        var took: [Double] = []
        for _ in 0..<rounds {
            let away = try await timed { try await lifecycle.enterBackground(cause: .operator) }
            guard scenes.allSatisfy({ $0.state == .background }) else {
                throw Failure.failed("a scene stayed in the foreground of a process in the background")
            }
            took.append(try await timed { try await lifecycle.enterForeground(cause: .operator) } + away)
            guard scenes.allSatisfy({ $0.state == .active }) else {
                throw Failure.failed("a scene did not return to the foreground")
            }
        }
        await lifecycle.terminate()
        return median(took)
    }

    private func timed(_ body: () async throws -> LifecycleReport) async throws -> Double {
        let began = SteadyClock.now
        let report = try await body()
        let took = (SteadyClock.now - began).milliseconds
        guard report.overran.isEmpty, report.unreached.isEmpty, report.failures.isEmpty, !report.isSuperseded else {
            throw Failure.failed("\(report)")
        }
        return took
    }

    /// Times reads of the state and bare atomic loads, alternately. Returns the fastest round of each, in nanoseconds
    /// of processor time.
    func stateReads(_ reads: Int = 2_000_000) -> (read: Double, load: Double) {
        let lifecycle = ResourceManager(source: LinuxPressureSource()).lifecycle
        let bare = BareState()
        var sum = 0
        func nanoseconds(_ body: () -> Int) -> Double {
            let began = SteadyClock.thread
            sum &+= body()
            return (SteadyClock.thread - began).inSeconds * 1e9 / Double(reads)
        }
        var best = (read: Double.infinity, load: Double.infinity)
        for _ in 0..<max(3, rounds) {
            best.load = min(
                best.load, nanoseconds { (0..<reads).reduce(into: 0) { sum, _ in sum &+= Int(bare.value) } })
            best.read = min(
                best.read,
                nanoseconds { (0..<reads).reduce(into: 0) { sum, _ in sum &+= Int(lifecycle.state.rawValue) } })
        }
        withExtendedLifetime(sum) {}
        return best
    }
}

/// An atomic byte behind a call: the minimum for reading a state from another module.
private final class BareState: Sendable {
    private let bits = Atomic<UInt8>(0)

    // Acquire ordering, like the state's own load.
    @inline(never) var value: UInt8 { bits.load(ordering: .acquiring) }
}
