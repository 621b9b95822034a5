import Synchronization

/// Everything that can let go of memory, cheapest to rebuild first.
final class PurgeableRegistry: Sendable {
    final class Entry: Sendable {
        let purgeable: any Purgeable
        let name: String
        let rebuildCost: RebuildCost
        let isMetered: Bool
        let gate = CallGate()
        /// Bytes held when last asked. Relaxed: written and read by the thread that purges; a stale number misplaces one request.
        let held = Atomic<Int>(0)

        init(_ purgeable: any Purgeable, meter: ChargeMeter) {
            self.purgeable = purgeable
            name = purgeable.name
            rebuildCost = purgeable.rebuildCost
            isMetered = purgeable.attach(meter)
        }
    }

    private struct State {
        var entries: [Entry] = []
        var unmetered = 0
    }

    private let state = Mutex(State())

    func add(_ entry: Entry) {
        state.withLock { state in
            let place = state.entries.firstIndex { $0.rebuildCost > entry.rebuildCost } ?? state.entries.endIndex
            state.entries.insert(entry, at: place)
            if !entry.isMetered { state.unmetered += 1 }
        }
    }

    func remove(_ entry: Entry) {
        let removed: Entry? = state.withLock { state in
            guard let place = state.entries.firstIndex(where: { $0 === entry }) else { return nil }
            if !entry.isMetered { state.unmetered -= 1 }
            return state.entries.remove(at: place)
        }
        withExtendedLifetime(removed) {}
    }

    /// Whether any holder's bytes are known only by asking it.
    var hasUnmetered: Bool { state.withLock { $0.unmetered > 0 } }

    /// A snapshot in order of rebuild cost, then of registration. Allocates nothing.
    var snapshot: [Entry] { state.withLock { $0.entries } }
}
