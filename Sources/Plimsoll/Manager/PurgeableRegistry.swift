import Synchronization

/// Everything that can let go of memory: what is volatile first, then by what it costs to rebuild.
final class PurgeableRegistry: Sendable {
    final class Entry: Sendable {
        let purgeable: any Purgeable
        /// The same, if its pages are volatile.
        let volatile: (any VolatilePurgeable)?
        let name: String
        let rebuildCost: RebuildCost
        let place: PurgeablePlace
        /// Whether it answers at once, on whatever thread.
        let isPrompt: Bool
        /// Whether what it holds is known from a meter.
        let isMetered: Bool
        /// Whether it is asked under pressure.
        let isReleasable: Bool
        let gate = CallGate()
        /// Bytes held when last asked. Relaxed: written and read by the thread that purges; a stale number misplaces one request.
        let held = Atomic<Int>(0)
        /// What of them it may be asked for. Relaxed, as `held`.
        let offered = Atomic<Int>(0)
        /// What it said last when asked for a status.
        let answer = Mutex<HolderAnswer?>(nil)
        /// Nanoseconds a byte to make it again when last asked, as bits; not a number for unknown. Relaxed, as `held`.
        private let rate = Atomic<UInt64>(Double.nan.bitPattern)

        init(_ purgeable: any Purgeable, _ place: PurgeablePlace = PurgeablePlace(), meter: ChargeMeter, volatileMeter: ChargeMeter) {
            self.purgeable = purgeable
            self.place = place
            volatile = purgeable as? any VolatilePurgeable
            name = purgeable.name
            rebuildCost = purgeable.rebuildCost
            isReleasable = purgeable.releasesUnderPressure
            isPrompt = purgeable is any PromptPurgeable
            let declaresHeap = purgeable.attach(meter)
            volatile?.attach(volatile: volatileMeter)
            isMetered = declaresHeap || volatile != nil
        }

        /// Asks how long it takes to make it again.
        func lookAtRate() { rate.store((purgeable.rebuildTimePerByte ?? .nan).bitPattern, ordering: .relaxed) }

        /// What it said last.
        var lastRate: Double? {
            let rate = Double(bitPattern: rate.load(ordering: .relaxed))
            return rate.isNaN ? nil : rate
        }

        /// Whether it is for `RebuildOrder` which of them is asked first.
        func isSameClass(as other: Entry) -> Bool { rebuildCost == other.rebuildCost && (volatile == nil) == (other.volatile == nil) }

        fileprivate func isAskedBefore(_ other: Entry) -> Bool {
            if (volatile == nil) != (other.volatile == nil) { return volatile != nil }
            return rebuildCost < other.rebuildCost
        }
    }

    private struct State {
        var entries: [Entry] = []
        /// Of those that are asked under pressure.
        var unmetered = 0
        var releasable = 0
        /// By name, of those that have one from outside.
        var limits: [String: ByteCount] = [:]

        mutating func count(_ entry: Entry, _ step: Int) {
            guard entry.isReleasable else { return }
            releasable += step
            if !entry.isMetered { unmetered += step }
        }
    }

    private let state = Mutex(State())

    func add(_ entry: Entry) {
        let limit = state.withLock { state in
            let place = state.entries.firstIndex { entry.isAskedBefore($0) } ?? state.entries.endIndex
            state.entries.insert(entry, at: place)
            state.count(entry, 1)
            return state.limits[entry.name]
        }
        if let limit { entry.resize(to: limit) }
    }

    /// Has those of these names, registered now or later, hold no more than that. A name that is left out keeps what it has, and so does one whose limit is
    /// the same as in the last call: somebody may have set another meanwhile.
    func setLimits(_ limits: [String: ByteCount]) {
        let (entries, before) = state.withLock { state in
            defer { state.limits = limits }
            return (state.entries, state.limits)
        }
        for entry in entries {
            if let limit = limits[entry.name], limit != before[entry.name] { entry.resize(to: limit) }
        }
    }

    func remove(_ entry: Entry) {
        let removed: Entry? = state.withLock { state in
            guard let place = state.entries.firstIndex(where: { $0 === entry }) else { return nil }
            state.count(entry, -1)
            return state.entries.remove(at: place)
        }
        withExtendedLifetime(removed) {}
    }

    /// Whether any holder is asked under pressure.
    var hasReleasable: Bool { state.withLock { $0.releasable > 0 } }

    /// Whether the bytes of any of these are known only by asking it.
    var hasUnmetered: Bool { state.withLock { $0.unmetered > 0 } }

    /// A snapshot in the order of asking: volatile ones first, then by rebuild cost, then as registered. Allocates nothing.
    var snapshot: [Entry] { state.withLock { $0.entries } }

    /// Where in a snapshot the holders of volatile memory stand. Allocates nothing.
    func volatileRange(of entries: [Entry]) -> Range<Int> {
        var end = 0
        while end < entries.count, entries[end].volatile != nil { end += 1 }
        return 0..<end
    }
}
