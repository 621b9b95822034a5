import CSimulatedThreads
import Plimsoll

/// The memory of one unit, as its control group would count it.
///
/// `@unchecked`: only the thread whose turn it is touches the members.
final class SimulatedMemory: PressureSource, @unchecked Sendable {
    let limit: Int
    /// Bytes that no reclaim can take, and clean page cache.
    private(set) var base = 20 << 20, file = 0
    private(set) var caches: [SimulatedCache] = []
    /// Called when the kernel must kill the unit.
    var whenExhausted: () -> Void = {}
    private let loop = Parker()
    /// Time since which at least that level is due, by running time of the unit.
    private(set) var dueSince: [Duration?] = [nil, nil, nil]
    /// Running time of the unit.
    var running: () -> Duration = { .zero }
    private var timesAtLimit = 0
    /// Level of the unit's manager.
    var level: () -> PressureLevel = { .normal }
    /// Called with the time until the pressure loop runs again, if the loop asked for another time.
    var willRead: (Duration) -> Void = { _ in }
    private let group: Int32
    /// The last reading, the time since which all readings were equal, and the wait that the loop then asked for.
    private var last: State?, lastSince: Int64 = 0, lastPeriod: Int64 = 0, repeats = 0
    private let doze = UnsafeMutablePointer<simulated_doze>.allocate(capacity: 1)

    init(limit: Int, group: Int32) {
        (self.limit, self.group) = (limit, group)
        doze.initialize(
            to: simulated_doze(
                period: 0, longest: 0,
                roused: { Unmanaged<SimulatedMemory>.fromOpaque($0!).takeUnretainedValue().willRead(.nanoseconds($1)) },
                context: Unmanaged.passUnretained(self).toOpaque()))
    }

    deinit { doze.deallocate() }

    var usage: Int { base + file + caches.reduce(0) { $0 + $1.heldBytes } }
    var available: Int { limit - usage + file }

    func add(_ cache: SimulatedCache) {
        cache.memory = self
        caches.append(cache)
    }

    func grow(_ bytes: Int) {
        base = max(1 << 20, base + bytes)
        changed()
    }

    func readFile(_ bytes: Int) {
        file += min(bytes, max(0, limit - usage))
        changed()
    }

    /// Takes clean page cache, as the kernel does. Returns the bytes taken.
    func reclaim(_ bytes: Int) -> Int {
        let taken = min(bytes, file)
        file -= taken
        simulated_rouse(group)
        return taken
    }

    /// Counts a change. The kernel takes page cache at the limit, and kills when that is not enough.
    func changed() {
        if usage > limit {
            timesAtLimit += 1
            _ = reclaim(usage - limit)
            if usage > limit { return whenExhausted() }
        }
        let before = truth
        let thresholds = PressureThresholds.standard, limit = ByteCount(limit), left = ByteCount(available)
        for (level, margin) in [(PressureLevel.warning, thresholds.warningMargin), (.critical, thresholds.criticalMargin)] {
            let index = Int(level.rawValue)
            dueSince[index] = left < margin.below(limit) ? dueSince[index] ?? running() : nil
        }
        // The kernel's thresholds ring.
        if truth != before { loop.unpark() }
    }

    /// The level by bytes alone.
    var truth: PressureLevel { dueSince[2] != nil ? .critical : dueSince[1] != nil ? .warning : .normal }

    // MARK: PressureSource

    var capabilities: Capabilities {
        Capabilities(support: .ownGroup, signals: [.init("usage", isLive: true, "simulated")])
    }

    func read(at: Duration) throws(PressureSourceError) -> PressureReading {
        PressureReading(
            at: at, boundary: .maximum, limit: ByteCount(limit), usage: ByteCount(usage),
            workingSet: ByteCount(usage - file), available: ByteCount(available), resident: ByteCount(usage - file),
            stall: .init(some: .zero), events: .init(max: timesAtLimit))
    }

    /// Waits for the next reading. Most of a fleet's work in a day is to read the same values again, near the margin
    /// every two milliseconds. After five equal readings, the wait skips readings that would be equal again, for twice
    /// as long as the values have been equal. The wait is 28 s at most, as the assessor starts afresh after 30 s
    /// without a reading. During a shortage the loop counts time as well, so there a turn is late by 100 ms at most, as
    /// on a busy machine.
    func wait(atMost limit: Duration) {
        // The calculation uses nanoseconds: a multiplication of a `Duration` would take longer than the rest.
        let now = SimulatedThreads.now.inNanoseconds, period = limit.inNanoseconds, level = level()
        let state = State(usage: usage, file: file, level: level)
        if state != last || period > lastPeriod * 2 || period < lastPeriod / 2 {
            (last, lastSince, lastPeriod, repeats) = (state, now, period, 0)
        }
        repeats += 1
        let longest = min((now - lastSince) * 2, level == .normal ? 28_000_000_000 : 100_000_000)
        if repeats > 5, period > 0, longest >= period * 2 {
            doze.pointee.period = period
            doze.pointee.longest = longest / period * period
            willRead(.nanoseconds(doze.pointee.longest))
            simulated_doze(doze)
        }
        if loop.park(atMost: limit) { last = nil }
    }

    /// The values of one reading.
    private struct State: Equatable {
        var usage: Int, file: Int, level: PressureLevel
    }

    func wake() { loop.unpark() }
    func footprint() -> Footprint { Footprint(resident: ByteCount(usage - file), usage: ByteCount(usage)) }
    var rings: Bool { true }
}

/// A cache on the heap with a slow release.
///
/// `@unchecked`: only the thread whose turn it is touches the members.
final class SimulatedCache: Purgeable, @unchecked Sendable {
    let name: String
    let rebuildCost: RebuildCost
    private(set) var heldBytes = 0
    weak var memory: SimulatedMemory?

    init(_ name: String, _ rebuildCost: RebuildCost) { (self.name, self.rebuildCost) = (name, rebuildCost) }

    func fill(_ bytes: Int) {
        heldBytes += bytes
        memory?.changed()
    }

    func release(_ target: Int) -> Int {
        SimulatedThreads.sleep(Dice.between(.microseconds(200), .milliseconds(5)))
        let released = min(heldBytes, max(target, 0))
        heldBytes -= released
        memory?.changed()
        return released
    }
}
