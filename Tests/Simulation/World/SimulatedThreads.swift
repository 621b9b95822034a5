import CSimulatedThreads
import Glibc
import Plimsoll

/// The scheduler of the simulation, and the clock that goes with it.
enum SimulatedThreads {
    static var now: Duration { .nanoseconds(simulated_now()) }

    /// Makes the calling thread the first simulated one.
    static func begin(seed: UInt64) {
        simulated_begin(seed) { Pool.enqueue(unsafeBitCast($0!, to: UnownedJob.self)) }
    }

    /// Blocks the calling thread for that simulated time.
    static func sleep(_ time: Duration) { simulated_sleep(max(0, time.inNanoseconds)) }

    static let timekeeper = Timekeeper(
        elapsed: { now }, asleep: { .zero }, onStep: nil,
        // Wall-clock time starts at 2026-01-01.
        wall: { .seconds(1_767_225_600) + now })
}

/// The cooperative pool of one group of threads: one thread.
///
/// `@unchecked`: only the thread whose turn it is touches the members, and no turn ends within them.
final class Pool: TaskExecutor, @unchecked Sendable {
    // Only the thread whose turn it is touches the pools, as with the members of a pool.
    private nonisolated(unsafe) static var pools: [Int32: Pool] = [:]

    private var jobs: [UnownedJob] = []
    private let parker = Parker()
    private var isOver = false

    static func enqueue(_ job: UnownedJob) { of(simulated_group()).add(job) }

    private static func of(_ group: Int32) -> Pool {
        if let pool = pools[group] { return pool }
        let pool = Pool()
        pools[group] = pool
        guard Thread.start("pool", { pool.serve() }) else { fatalError("no thread for a pool") }
        return pool
    }

    /// Ends the pool of a group once its jobs are done.
    static func end(_ group: Int32) {
        guard let pool = pools.removeValue(forKey: group) else { return }
        pool.isOver = true
        pool.parker.unpark()
    }

    func enqueue(_ job: consuming ExecutorJob) { add(UnownedJob(job)) }

    private func add(_ job: UnownedJob) {
        jobs.append(job)
        parker.unpark()
    }

    private func serve() {
        while !isOver || !jobs.isEmpty {
            guard !jobs.isEmpty else {
                parker.park()
                continue
            }
            // Jobs of a pool with several threads begin in any order.
            let job = jobs.remove(at: Dice.roll(jobs.count))
            job.runSynchronously(on: asUnownedTaskExecutor())
        }
    }
}

/// Random choices of the world, all from the seed.
enum Dice {
    static func roll(_ count: Int) -> Int { Int(simulated_random() % UInt64(max(1, count))) }
    static func chance(_ share: Double) -> Bool { unit() < share }
    static func unit() -> Double { Double(simulated_random() >> 11) / Double(1 << 53) }
    static func between(_ low: Duration, _ high: Duration) -> Duration { low + (high - low) * unit() }
    static func between(_ low: Double, _ high: Double) -> Double { low + (high - low) * unit() }
    /// Exponentially distributed, with that mean.
    static func after(mean: Duration) -> Duration { mean * -log(1 - unit()) }
}
