import Synchronization

/// Threads that begin together and work until the end of a run. Each thread is timed by the thread's own clocks.
final class Crew: Sendable {
    // Mutable state: atomics. Release and acquire ordering lets a thread start and stop soon. The flags publish
    // nothing.
    private let ready = Atomic(0)
    private let isOver = Atomic(false)
    private let laps: Mutex<[Lap]>
    private let size: Int

    private init(size: Int) {
        self.size = size
        laps = Mutex(Array(repeating: Lap(), count: size))
    }

    /// Runs `work` over and over on `size` threads for about `length`.
    ///
    /// - Parameter work: performs some operations as the given thread; returns the numbers of operations and hits.
    static func run(
        _ size: Int, for length: Duration, _ work: @escaping @Sendable (_ thread: Int) -> (operations: Int, hits: Int)
    ) throws -> Heat {
        let crew = Crew(size: size)
        let threads = try (0..<size).map { number in
            guard let thread = PlainThread({ crew.member(number, work) }) else {
                throw Failure.failed("cannot start a thread")
            }
            return thread
        }
        SteadyClock.sleep(length)
        crew.isOver.store(true, ordering: .releasing)
        for thread in threads { thread.join() }
        return Heat(laps: crew.laps.withLock { $0 })
    }

    private func member(_ number: Int, _ work: (Int) -> (operations: Int, hits: Int)) {
        let queue = RunQueue()
        var lap = Lap()
        ready.wrappingAdd(1, ordering: .acquiringAndReleasing)
        // A spin and not a lock: threads woken one after the other would not begin together.
        while ready.load(ordering: .acquiring) < size {}
        let start = ThreadTimes.now(queue)
        while !isOver.load(ordering: .acquiring) {
            let (operations, hits) = work(number)
            lap.operations += Double(operations)
            lap.hits += Double(hits)
        }
        lap.times = ThreadTimes.now(queue) - start
        let result = lap
        laps.withLock { $0[number] = result }
    }
}
