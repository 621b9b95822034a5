import Synchronization

/// The registered purgeables: volatile ones first, then by rebuild cost.
package final class PurgeableRegistry: Sendable {
    /// Memory that a meter bounds, and that a `Divider` divides.
    package enum Pool: Sendable {
        /// Memory for caches within the limit.
        case heap
        /// Memory that would otherwise be idle.
        case volatile
    }

    package final class Entry: Sendable {
        package let purgeable: any Purgeable
        /// `purgeable` if its pages are volatile, else `nil`.
        let volatile: (any VolatilePurgeable)?
        /// `purgeable` if the cache learns its miss curve and declares all bytes on a meter of the manager, else `nil`.
        let shared: (any SharedPurgeable)?
        /// The memory of which the cache gets a share.
        let pool: Pool
        /// Share of the memory for caches; zero for none. Relaxed, as `held`.
        private let share = Atomic<Int>(0)
        /// The worth of memory to the cache, as found in the last round of the division.
        let worth = Mutex<CacheWorth?>(nil)
        let name: String
        let rebuildCost: RebuildCost
        let place: PurgeablePlace
        /// True if the purgeable answers immediately, on any thread.
        let isPrompt: Bool
        /// True if a meter tracks the held bytes.
        let isMetered: Bool
        /// True if the purgeable is asked under pressure.
        let isReleasable: Bool
        let gate = CallGate()
        /// Gate of status queries. Apart from the other calls, because a query under way must not keep a pass from
        /// memory.
        let statusGate = CallGate()
        /// True while a restriction is in force. Relaxed: used inside the gate, and after the gate has closed.
        private let restriction = Atomic<Bool>(false)
        /// Gate of the lifting at the end of the registration.
        private let lastLifting = CallGate()
        /// Bytes held at the last query of a pass or a status, or of `heldBytes(in:)` for an application's purgeable.
        /// Relaxed: a number on its own, for a status, the last line of a process and a record of the turns.
        let held = Atomic<Int>(0)
        /// Part of the held bytes that the purgeable may be asked for. Relaxed, as `held`.
        let offered = Atomic<Int>(0)
        /// Last answer to a status query.
        let answer = Mutex<HolderAnswer?>(nil)
        /// Rebuild time in nanoseconds a byte at the last query, as a bit pattern; NaN for unknown. Relaxed:
        /// workers and status queries store a number on its own; the last one stays.
        private let rate = Atomic<UInt64>(Double.nan.bitPattern)

        package init(
            _ purgeable: any Purgeable, _ place: PurgeablePlace = PurgeablePlace(), meter: ChargeMeter,
            volatileMeter: ChargeMeter
        ) {
            self.purgeable = purgeable
            self.place = place
            volatile = purgeable as? any VolatilePurgeable
            name = purgeable.name
            rebuildCost = purgeable.rebuildCost
            let metered = purgeable as? any MeteredPurgeable
            isReleasable = purgeable.releasesUnderPressure
            isPrompt = purgeable is any PromptPurgeable
            let declaresHeap = metered?.attach(meter) ?? false
            volatile?.attach(volatile: volatileMeter)
            isMetered = declaresHeap || volatile != nil
            shared = declaresHeap && isReleasable ? purgeable as? any SharedPurgeable : nil
            pool = volatile != nil && volatileMeter !== meter ? .volatile : .heap
        }

        /// True if the manager decides the cache's share: a limit set by hand stands.
        var isShared: Bool { shared.map { $0.holdsAtMost == nil } ?? false }

        package var currentShare: Int { share.load(ordering: .relaxed) }

        func setShare(_ bytes: Int?) {
            share.store(max(0, bytes ?? 0), ordering: .relaxed)
            shared?.setShare(bytes)
        }

        /// Ends the part that the cache takes in sharing memory.
        func stopSharing() {
            setShare(nil)
            worth.withLock { $0 = nil }
            shared?.learn(onRound: nil)
        }

        var isRestricted: Bool { restriction.load(ordering: .relaxed) }

        /// Lets the purgeable hold no more than now. Called inside the gate.
        func restrict() {
            restriction.store(true, ordering: .relaxed)
            purgeable.restrict(to: ByteCount(purgeable.heldBytes))
        }

        /// Lifts the restriction, if there is one. Called inside the gate, or after the gate has closed.
        func liftRestriction() {
            if restriction.exchange(false, ordering: .relaxed) { purgeable.restrict(to: nil) }
        }

        /// Lifts the restriction after `close()`. Waits for another thread that is doing so, as `Registration.cancel`
        /// does.
        func liftForGood() {
            _ = lastLifting.call { liftRestriction() }
            lastLifting.close()
        }

        /// Ends the calls into the purgeable, and waits for those inside (`Registration.cancel`).
        func close() {
            gate.close()
            statusGate.close()
        }

        func readRate() { rate.store((purgeable.rebuildTimePerByte ?? .nan).bitPattern, ordering: .relaxed) }

        /// Rebuild time at the last query, in nanoseconds a byte.
        var lastRate: Double? {
            let rate = Double(bitPattern: rate.load(ordering: .relaxed))
            return rate.isNaN ? nil : rate
        }

        /// Returns true if both belong to the same class, within which `RebuildOrder` decides the order.
        func isSameClass(as other: Entry) -> Bool {
            rebuildCost == other.rebuildCost && (volatile == nil) == (other.volatile == nil)
        }

        fileprivate func isAskedBefore(_ other: Entry) -> Bool {
            if (volatile == nil) != (other.volatile == nil) { return volatile != nil }
            return rebuildCost < other.rebuildCost
        }
    }

    private struct State {
        var entries: [Entry] = []
        /// Counts of the purgeables that are asked under pressure.
        var unmetered = 0
        var releasable = 0
        /// Limits set from outside, by name.
        var limits: [String: ByteCount] = [:]

        mutating func count(_ entry: Entry, _ step: Int) {
            guard entry.isReleasable else { return }
            releasable += step
            if !entry.isMetered { unmetered += step }
        }
    }

    private let state = Mutex(State())

    package init() {}

    package func add(_ entry: Entry) {
        var limit = state.withLock { state in
            let place = state.entries.firstIndex { entry.isAskedBefore($0) } ?? state.entries.endIndex
            state.entries.insert(entry, at: place)
            state.count(entry, 1)
            return state.limits[entry.name]
        }
        while let current = limit {
            entry.resize(to: current)
            // Another thread may have set a later limit before this one.
            let latest = state.withLock { $0.limits[entry.name] }
            limit = latest == current ? nil : latest
        }
    }

    /// Limits the purgeables with these names, registered now or later. A name that is left out keeps its limit. So
    /// does a name with the same limit as in the last call, because other code may have set another limit
    /// meanwhile.
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

    /// True if any purgeable is asked under pressure.
    var hasReleasable: Bool { state.withLock { $0.releasable > 0 } }

    /// True if the held bytes of any such purgeable are known only by asking.
    var hasUnmetered: Bool { state.withLock { $0.unmetered > 0 } }

    /// A snapshot in the order of asking: volatile purgeables first, then by rebuild cost, then by registration.
    /// Allocates nothing.
    package var snapshot: [Entry] { state.withLock { $0.entries } }

    /// Returns the range of the volatile purgeables in a snapshot. Allocates nothing.
    func volatileRange(of entries: [Entry]) -> Range<Int> {
        var end = 0
        while end < entries.count, entries[end].volatile != nil { end += 1 }
        return 0..<end
    }
}

extension PurgeableRegistry.Entry {
    /// Sets the limit, if the purgeable supports that.
    func resize(to limit: ByteCount) { (purgeable as? any ResizablePurgeable)?.resize(to: limit) }
}

/// The status that a purgeable reported.
struct HolderAnswer: Sendable {
    var held = ByteCount.zero
    /// Held volatile bytes; `nil` if the purgeable has no volatile memory.
    var volatileHeld: ByteCount?
    var limit: ByteCount?
    var cache: CacheStatistics?
}

/// The group, tags and options of a registered purgeable.
package struct PurgeablePlace: Sendable, Hashable {
    var group: [String] = []
    var tags: [String] = []
    var purgesOnBackground = false

    package init(group: [String] = [], tags: [String] = [], purgesOnBackground: Bool = false) {
        self.group = group
        self.tags = tags
        self.purgesOnBackground = purgesOnBackground
    }

    /// Returns the path of the group with that name: the parts between slashes.
    static func path(_ name: String) -> [String] { name.split(separator: "/").map(String.init) }
}

/// A selection of the purgeables registered with a manager.
public struct PurgeableSelection: Sendable, Hashable {
    private var group: [String]?
    private var name: String?
    private var tag: String?
    private var highestCost = RebuildCost.precious

    /// Selects all purgeables.
    public static let all = PurgeableSelection()

    /// Selects the members of a group, nested groups included. The names are joined by slashes. An empty name selects
    /// nothing.
    public static func group(_ name: String) -> PurgeableSelection {
        var selection = PurgeableSelection()
        selection.group = PurgeablePlace.path(name)
        return selection
    }

    /// Selects the purgeables registered with `tag`. Not related to the tags of entries in a cache.
    public static func tag(_ tag: String) -> PurgeableSelection {
        var selection = PurgeableSelection()
        selection.tag = tag
        return selection
    }

    /// Selects the purgeables named `name`.
    public static func named(_ name: String) -> PurgeableSelection {
        var selection = PurgeableSelection()
        selection.name = name
        return selection
    }

    /// Restricts the selection to purgeables that cost no more than `cost` to rebuild.
    public func upTo(_ cost: RebuildCost) -> PurgeableSelection {
        var selection = self
        selection.highestCost = min(cost, highestCost)
        return selection
    }

    func mayAsk(_ entry: PurgeableRegistry.Entry) -> Bool { includes(entry) && (entry.isReleasable || name != nil) }

    func includes(_ entry: PurgeableRegistry.Entry) -> Bool {
        entry.rebuildCost <= highestCost
            && (group.map { !$0.isEmpty && entry.place.group.starts(with: $0) } ?? true)
            && (name.map { entry.name == $0 } ?? true)
            && (tag.map { entry.place.tags.contains($0) } ?? true)
    }
}
