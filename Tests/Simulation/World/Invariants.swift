import CSimulatedThreads
import Glibc
import Plimsoll

/// Rules that hold at any time. A violation ends the run, and names the seed that reproduces the violation.
enum Invariants {
    // Set once, before other threads exist.
    nonisolated(unsafe) static var seed: UInt64 = 0
    nonisolated(unsafe) static var isTraced = false

    static func check(_ holds: Bool, _ rule: @autoclosure () -> String) {
        guard !holds else { return }
        print("violation at \(SimulatedThreads.now) with seed \(seed): \(rule())")
        simulated_print_threads()
        fflush(nil)
        _exit(1)
    }

    static func trace(_ text: @autoclosure () -> String) {
        guard isTraced else { return }
        print("\(SimulatedThreads.now.inSeconds) \(text())")
        fflush(nil)
    }
}

/// Counts of a run.
///
/// `nonisolated(unsafe)`: only the thread whose turn it is touches these, and no turn ends within an addition.
enum Counts {
    nonisolated(unsafe) static var tokens = 0
    nonisolated(unsafe) static var expirations = 0
    nonisolated(unsafe) static var freezes = 0
    nonisolated(unsafe) static var unitsAsked = 0
    nonisolated(unsafe) static var kills = 0
    nonisolated(unsafe) static var killsWhileSuspended = 0
    nonisolated(unsafe) static var killsByKernel = 0
    nonisolated(unsafe) static var starts = 0
    nonisolated(unsafe) static var warnings = 0
    nonisolated(unsafe) static var steps = 0
    nonisolated(unsafe) static var saves = 0
}
