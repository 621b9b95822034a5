import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollLinux
import Synchronization

/// A service that holds a cache and does nothing. Measures the library's cost and counts false alarms.
final class Idler: Sendable {
    /// Result at the end of the run.
    struct Result: Codable {
        /// Number of wake-ups of the library's threads during the measured time.
        var wakeups = 0
        /// Processor time of the library's threads during the measured time.
        var processorMicroseconds = 0
        var measuredMicroseconds = 0
        /// Number of turns of the loop.
        var turns = 0
        /// Medians; `nil` unless turns were timed.
        var turnWallMicroseconds: Double?
        var turnProcessorMicroseconds: Double?
        var residentBytes = 0
        /// Number of turns at the warning level, and above.
        var warnings = 0
        var aboveWarning = 0
        var purges = 0
    }

    private let cache = PurgeableCache<UInt64, [UInt8]>("idle") { _, bytes in bytes.count + 96 }
    private let turns = Atomic<Int>(0)
    private let warnings = Atomic<Int>(0)
    private let aboveWarning = Atomic<Int>(0)
    private let isMeasured = Atomic<Bool>(false)

    /// One page below the allocator's next size, so that a value is 64 KiB with its header.
    private static let valueSize = (64 << 10) - 64

    /// Fills the cache and allocates live memory, all before measuring or managing begins.
    init(cache size: ByteCount, live: ByteCount) {
        var key: UInt64 = 0
        while cache.byteCount < size.bytes {
            cache.insert([UInt8](repeating: 1, count: Self.valueSize), forKey: key)
            key += 1
        }
        Ramp(live, bytesPerSecond: nil).run()
    }

    /// Idles, either with a manager and a registered cache or without a manager.
    ///
    /// - Parameters:
    ///   - box: file of a black box; `nil` for none.
    ///   - warmUp: time before measuring begins, in which levels may fall and first-time work is done.
    func idle(managed: Bool, timed: Bool, box: String? = nil, warmUp: Duration, for length: Duration) async throws
        -> Result
    {
        guard managed else { return try await measure(warmUp, length, nil) }
        let source = LinuxPressureSource()
        let timer = timed ? TurnTimer(source) : nil
        let manager = ResourceManager(
            source: timer ?? source, time: SteadyClock.timekeeper, onTurn: { [self] in note($1.level) })
        manager.register(cache)
        if let box { try manager.keepBlackBox(at: box) }
        async let _: Void = manager.run()
        // Wake the loop as often as danger would. Turns then follow each other closely, not after a processor's
        // sleep.
        let waker = timer.map { timer in
            PlainThread { [self] in
                while !isMeasured.load(ordering: .relaxed) { SteadyClock.sleep(.milliseconds(1)); timer.wake() }
            }
        }
        waker??.detach()
        var result = try await measure(warmUp, length, timer)
        isMeasured.store(true, ordering: .relaxed)
        result.purges = manager.reports.count { $0.action == .release }
        result.warnings = warnings.load(ordering: .relaxed)
        result.aboveWarning = aboveWarning.load(ordering: .relaxed)
        return result
    }

    private func note(_ level: PressureLevel) {
        turns.wrappingAdd(1, ordering: .relaxed)
        switch level {
        case .normal: break
        case .warning: warnings.wrappingAdd(1, ordering: .relaxed)
        case .critical: aboveWarning.wrappingAdd(1, ordering: .relaxed)
        }
    }

    private func measure(_ warmUp: Duration, _ length: Duration, _ timer: TurnTimer?) async throws -> Result {
        // Sleep on a thread, not in a task: the runtime's timers wake up now and then by themselves.
        try await PlainThread.run { [self] in
            SteadyClock.sleep(warmUp)
            timer?.reset()
            return sleepAndMeasure(length, timer)
        }
    }

    private func sleepAndMeasure(_ length: Duration, _ timer: TurnTimer?) -> Result {
        let before = (turns: turns.load(ordering: .relaxed), threads: OwnThreads(), at: SteadyClock.now)
        SteadyClock.sleep(length)
        var result = Result()
        result.measuredMicroseconds = Int((SteadyClock.now - before.at).inNanoseconds / 1000)
        let threads = OwnThreads()
        result.processorMicroseconds = Int((threads.processor - before.threads.processor).inNanoseconds / 1000)
        result.wakeups = threads.switches - before.threads.switches
        result.turns = turns.load(ordering: .relaxed) - before.turns
        result.residentBytes = Self.resident
        if let turns = timer?.turns {
            result.turnWallMicroseconds = median(turns.wall)
            result.turnProcessorMicroseconds = median(turns.processor)
        }
        return result
    }

    private static var resident: Int {
        let pages =
            ControlFile.text("/proc/self/statm")?.split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0
        return pages * Int(sysconf(Int32(_SC_PAGESIZE)))
    }
}
