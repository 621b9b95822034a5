import Plimsoll

/// The memory of one unit, as its control group would count it.
///
/// `@unchecked`: only the thread whose turn it is touches the members.
final class SimulatedMemory: PressureSource, @unchecked Sendable {
    let limit: Int
    /// Bytes that nothing can take, and clean page cache.
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

    init(limit: Int) { self.limit = limit }

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

    func wait(atMost limit: Duration) { loop.park(atMost: limit) }
    func wake() { loop.unpark() }
    func footprint() -> Footprint { Footprint(resident: ByteCount(usage - file), usage: ByteCount(usage)) }
    var rings: Bool { true }
}

/// A cache on the heap that takes its time to release.
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
