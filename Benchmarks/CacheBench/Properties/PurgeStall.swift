import ArgumentParser
import Foundation
import Glibc
import Plimsoll
import Synchronization

/// A million objects thrown out at once: how long that keeps the caller, and how long an operation of another thread takes meanwhile.
final class PurgeStall: Sendable {
    private static let entries = 1_000_000
    /// Others are watched so long after the call, too: freeing may have been left to them.
    private static let aftermath = Duration.milliseconds(300)

    private let cache = PurgeableCache<UInt64, Counted>("purge", cost: { _, _ in 1 })
    // Mutable state: atomics, relaxed but for `isWatched`, which is released and acquired so that the long steps are of the watched time; they have a lock, as
    // there are few.
    private let isWatched = Atomic(false)
    private let isOver = Atomic(false)
    private let steps = Atomic(0)
    private let long = Mutex<[Double]>([])
    /// Steps of the other thread that take longer are noted, in microseconds.
    private static let least = 20.0
    /// What a purge may keep others at most.
    private static let most = 50.0

    /// An object of which is known how many are alive.
    private final class Counted: Sendable {
        static let alive = Atomic(0)
        init() { Self.alive.wrappingAdd(1, ordering: .relaxed) }
        deinit { Self.alive.wrappingSubtract(1, ordering: .relaxed) }
    }

    /// In microseconds.
    struct Result {
        var caller: Double
        /// The longest operation of another thread but for as many as the machine made long in as much time without a purge: it takes virtual processors away for
        /// 80 to 100 us at any moment, which no clock of the guest's tells from work.
        var others: Double
        /// The longest operation of another thread, whatever kept it.
        var longest: Double
        /// The same in as much time without a purge.
        var undisturbed: Double
        /// Objects alive when the caller had its control back, and at the end of the watched time.
        var aliveAtReturn: Double
        var aliveAtEnd: Double

        var numbers: [Double] { [caller, others, longest, undisturbed, aliveAtReturn, aliveAtEnd] }
    }

    /// Medians of so many purges, each in a process of its own: what glibc keeps of an earlier one's objects in its fastbins would be merged in the middle of this
    /// one, by whichever thread asks for a kilobyte first (some 40 ns an object).
    static func measure(rounds: Int) throws -> (middle: Result, worst: Result) {
        let results = try (0..<rounds).map { _ in try Result(OwnPart.numbers(["_purge-stall"])) }
        func pick(_ choose: ([Double]) -> Double) -> Result {
            Result((0..<results[0].numbers.count).map { number in choose(results.map { $0.numbers[number] }) })
        }
        return (pick { median($0) ?? .nan }, pick { $0.max() ?? .nan })
    }

    /// The caller's time of NSCache's in microseconds, once: filling it takes long.
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

    /// Microseconds of the long steps of the other thread that overlap `body`, longest first.
    private func watch(_ body: () -> Void) -> [Double] {
        long.withLock { $0.removeAll() }
        isWatched.store(true, ordering: .releasing)
        body()
        // The step that waited for all of it ends after it.
        let seen = steps.load(ordering: .acquiring)
        while steps.load(ordering: .acquiring) < seen + 2 { SteadyClock.sleep(.microseconds(100)) }
        isWatched.store(false, ordering: .releasing)
        return long.withLock { $0.sorted(by: >) }
    }

    /// Asks for what was there and inserts again what is missing, as a service would.
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
            // A step that takes longer than 20 us may have waited for a processor, which is asked of the kernel then, and now and then so that no
            // short waits add up.
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
