import ArgumentParser
import Foundation
import Glibc
import Plimsoll
import Synchronization

/// Measures a purge of a million objects: the time of the caller, and the longest operation of another thread
/// meanwhile.
final class PurgeStall: Sendable {
    private static let entries = 1_000_000
    /// Time after the call in which the other thread is watched as well, because that thread may have to free the
    /// objects.
    private static let aftermath = Duration.milliseconds(300)

    private let cache = PurgeableCache<UInt64, Counted>("purge", cost: { _, _ in 1 })
    // Mutable state: atomics, relaxed except `isWatched`, which has release and acquire ordering so that the long steps
    // belong to the watched time. The long steps have a lock, because they are few.
    private let isWatched = Atomic(false)
    private let isOver = Atomic(false)
    private let steps = Atomic(0)
    private let long = Mutex<[Double]>([])
    /// Microseconds of the shortest step of the other thread that is recorded.
    private static let least = 20.0
    /// Microseconds for which a purge may delay others at most.
    private static let most = 50.0

    /// An object whose living instances are counted.
    private final class Counted: Sendable {
        static let alive = Atomic(0)
        init() { Self.alive.wrappingAdd(1, ordering: .relaxed) }
        deinit { Self.alive.wrappingSubtract(1, ordering: .relaxed) }
    }

    /// The times in microseconds.
    struct Result {
        var caller: Double
        /// The longest operation of another thread, after leaving out as many long ones as occur in the same time
        /// without a purge: the machine takes virtual processors away for 80 to 100 us at any moment, which no clock of
        /// the guest distinguishes from work.
        var others: Double
        /// The longest operation of another thread, for any cause.
        var longest: Double
        /// The same in the same time without a purge.
        var undisturbed: Double
        /// Living objects when the call returned, and at the end of the watched time.
        var aliveAtReturn: Double
        var aliveAtEnd: Double

        var numbers: [Double] { [caller, others, longest, undisturbed, aliveAtReturn, aliveAtEnd] }
    }

    /// Returns the medians of `rounds` purges, each in a separate process. In one process, glibc would keep objects of
    /// an earlier purge in its fastbins, and would merge them in the middle of this purge, on the thread that first
    /// allocates a kilobyte (some 40 ns an object).
    static func measure(rounds: Int) throws -> (middle: Result, worst: Result) {
        let results = try (0..<rounds).map { _ in try Result(OwnPart.numbers(["_purge-stall"])) }
        func pick(_ choose: ([Double]) -> Double) -> Result {
            Result((0..<results[0].numbers.count).map { number in choose(results.map { $0.numbers[number] }) })
        }
        return (pick { median($0) ?? .nan }, pick { $0.max() ?? .nan })
    }

    /// Returns the caller's time for NSCache in microseconds, measured once because the fill takes long.
    static func measureFoundation() -> Double {
        let cache = NSCache<NSNumber, Counted>()
        for number in 0..<entries { cache.setObject(Counted(), forKey: NSNumber(value: number)) }
        let start = SteadyClock.thread
        cache.removeAllObjects()
        return (SteadyClock.thread - start).inSeconds * 1e6
    }

    func run() throws -> Result {
        for number in 0..<Self.entries { cache.insert(Counted(), forKey: Keys.key(number)) }
        guard let thread = PlainThread({ self.work() }) else { throw Failure.failed("cannot start a thread") }
        while steps.load(ordering: .relaxed) < 1000 { SteadyClock.sleep(.milliseconds(1)) }

        let undisturbed = watch { SteadyClock.sleep(Self.aftermath) }
        var caller = 0.0, aliveAtReturn = 0
        let disturbed = watch {
            let queue = RunQueue(), start = ThreadTimes.now(queue)
            cache.removeAll()
            let times = ThreadTimes.now(queue) - start
            caller = times.wall - times.waited
            aliveAtReturn = Counted.alive.load(ordering: .relaxed)
            SteadyClock.sleep(Self.aftermath)
        }
        let aliveAtEnd = Counted.alive.load(ordering: .relaxed)
        isOver.store(true, ordering: .relaxed)
        thread.join()
        cache.removeAll()
        let machines = undisturbed.prefix { $0 > Self.most }.count
        return Result(
            caller: caller / 1000, others: disturbed.dropFirst(machines).first ?? Self.least,
            longest: disturbed.first ?? Self.least,
            undisturbed: undisturbed.first ?? Self.least, aliveAtReturn: Double(aliveAtReturn),
            aliveAtEnd: Double(aliveAtEnd))
    }

    /// Returns the microseconds of the other thread's long steps that overlap `body`, longest first.
    private func watch(_ body: () -> Void) -> [Double] {
        long.withLock { $0.removeAll() }
        isWatched.store(true, ordering: .releasing)
        body()
        // A step that waited for the whole of `body` ends after `body`.
        let seen = steps.load(ordering: .acquiring)
        while steps.load(ordering: .acquiring) < seen + 2 { SteadyClock.sleep(.microseconds(100)) }
        isWatched.store(false, ordering: .releasing)
        return long.withLock { $0.sorted(by: >) }
    }

    /// Requests the old keys and inserts some missing ones, as a service would.
    private func work() {
        let queue = RunQueue()
        var number = 0, waited = queue.waited
        while !isOver.load(ordering: .relaxed) {
            let key = Keys.key(number % Self.entries), watched = isWatched.load(ordering: .acquiring)
            number += 7919
            let fresh = number % 16 == 0 ? Counted() : nil
            let start = ThreadTimes.clock(CLOCK_MONOTONIC)
            if cache.value(forKey: key) == nil, let fresh { cache.insert(fresh, forKey: key) }
            var took = ThreadTimes.clock(CLOCK_MONOTONIC) - start
            // A step longer than 20 us may have waited for a processor, so the kernel's waits are read then. They are
            // also read now and then, so that no short waits add up.
            if took > 20_000 || number % 4096 == 0 {
                let total = queue.waited
                took -= total - waited
                waited = total
            }
            if watched, took > Self.least * 1000 { long.withLock { [took] in $0.append(took / 1000) } }
            steps.wrappingAdd(1, ordering: .acquiringAndReleasing)
        }
    }
}

extension PurgeStall.Result {
    init(_ numbers: [Double]) {
        (caller, others, longest) = (numbers[0], numbers[1], numbers[2])
        (undisturbed, aliveAtReturn, aliveAtEnd) = (numbers[3], numbers[4], numbers[5])
    }
}

/// One purge, in a process that has done nothing else.
struct PurgeStallCommand: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "_purge-stall", shouldDisplay: false)

    func run() throws {
        try reportingFailure { Output.line(try PurgeStall().run().numbers.map { "\($0)" }.joined(separator: " ")) }
    }
}
