import Synchronization

/// All state that is preserved, what the life cycle does with it at launch and on the way to the background, and the count of launches.
final class Preservation: Sendable {
    private struct State {
        var items: [PreservedItem] = []
        /// Those of the connected scenes: each is restored when its scene connects, and saved with the process's besides.
        var scenes: [PreservedItem] = []
        var ledger: LaunchLedger?
        /// Launches that may fail in a row before one starts clean.
        var launchLimit = 2
        /// Set by `restore`; what is registered later goes by it.
        var launch: Launch?
    }

    private struct Launch {
        var cleanStartReason: String?
        var previousRun: PreviousRun
    }

    private let alarms: Alarms
    private let threads: HandlerThreads
    private let state = Mutex(State())

    init(alarms: Alarms, threads: HandlerThreads) {
        self.alarms = alarms
        self.threads = threads
    }

    func add(_ name: String, in store: any StateStore, version: Int, _ closures: PreservedItem.Closures) -> Preserved {
        let item = PreservedItem(name: name, store: store, version: version, closures: closures, threads: threads)
        let (replaced, hasLaunched) = state.withLock { state in
            let index = state.items.firstIndex { $0.name == name }
            let replaced = index.map { state.items.remove(at: $0) }
            state.items.append(item)
            if state.ledger == nil { state.ledger = LaunchLedger(store: store, limit: state.launchLimit) }
            return (replaced, state.launch != nil)
        }
        replaced?.cancel()
        let preserved = Preserved(
            item, restoreNow: { [weak self] item in item.restore(cleanStartReason: self?.state.withLock { $0.launch?.cleanStartReason }) },
            remove: { [weak self] item in self?.state.withLock { $0.items.removeAll { $0 === item } } })
        if hasLaunched { preserved.restore() }
        return preserved
    }

    /// Has the state of a scene saved by every checkpoint from its restoring on, until `remove(scene:)`.
    func add(scene item: PreservedItem) { state.withLock { $0.scenes.append(item) } }

    /// A scene has ended, or keeps its state elsewhere.
    func remove(scene item: PreservedItem) {
        let removed = state.withLock { state in state.scenes.firstIndex { $0 === item }.map { state.scenes.remove(at: $0) } }
        withExtendedLifetime(removed) {}
    }

    /// Has launches counted in `store` rather than in that of the state registered first.
    func countLaunches(in store: any StateStore, limit: Int) {
        state.withLock { state in
            state.launchLimit = limit
            state.ledger = LaunchLedger(store: store, limit: limit)
        }
    }

    /// How the run before this one ended; `nil` before `restore`.
    var previousRun: PreviousRun? { state.withLock { $0.launch?.previousRun } }

    // MARK: - Launch

    /// Counts the launch and restores all state, in the order of registration, on the calling thread. Once a process.
    func restore() -> RestoreOutcome {
        let (ledger, items) = state.withLock { ($0.ledger, $0.items) }
        let (beginning, problems) = ledger?.begin() ?? (LaunchRecord.Beginning(record: LaunchRecord(phase: .launching), previousRun: .unknown), [])
        state.withLock { $0.launch = Launch(cleanStartReason: beginning.cleanStartReason, previousRun: beginning.previousRun) }
        let results = items.compactMap { item in
            item.restore(cleanStartReason: beginning.cleanStartReason).map { RestoreOutcome.Item(name: item.name, result: $0) }
        }
        return RestoreOutcome(
            previousRun: beginning.previousRun, cleanStartReason: beginning.cleanStartReason, items: results, problems: problems)
    }

    /// The process is up: has restored, and reached a state. Blocks for a write.
    ///
    /// - Returns: why that could not be written down; then this launch counts as failed.
    func launched() -> String? { note { try $0.launched() } }

    /// The process terminates in good order; call it last, after the last checkpoint. Blocks for a write.
    func ended() -> String? { note { try $0.ended() } }

    func markKilledByOperator() throws { try state.withLock { $0.ledger }?.markKilledByOperator() }

    private func note(_ write: (LaunchLedger) throws -> Void) -> String? {
        do {
            if let ledger = state.withLock({ $0.ledger }) { try write(ledger) }
            return nil
        } catch {
            return "\(error)"
        }
    }

    // MARK: - Checkpoint

    /// Saves all that has changed, the state of scenes included, each item beside the others, and waits for it, at most for `limit` of running time. Blocks
    /// the calling thread.
    ///
    /// What is late goes on, and is not called a second time while it does.
    ///
    /// - Returns: what was not saved in time, and why not.
    func checkpoint(within limit: Duration) -> [PreservationFailure] {
        let (items, scenes) = state.withLock { ($0.items, $0.scenes) }
        return save(items + scenes.filter(\.isRestored), within: limit)
    }

    /// The same for these items alone.
    func save(_ items: [PreservedItem], within limit: Duration) -> [PreservationFailure] {
        guard !items.isEmpty else { return [] }
        let round = Round(count: items.count)
        let alarm = limit > .zero ? alarms.set(.deadline, after: limit) { round.expire() } : nil
        if alarm == nil { round.expire() }
        for (index, item) in items.enumerated() {
            threads.run { item.save { round.finish(index, $0) } }
        }
        let outcomes = round.wait(alarms)
        alarm?.cancel()
        return zip(items, outcomes).compactMap { item, outcome in
            switch outcome {
            case .saved: nil
            case .failed(let failure as PreservationFailure): failure
            case .failed(let error): PreservationFailure(name: item.name, reason: "\(error)")
            case nil: PreservationFailure(name: item.name, reason: "it was not done within \(limit); what was saved before holds until it is")
            }
        }
    }

    /// The same by a point of running time, as `Heartbeat.running` tells it.
    func checkpoint(by deadline: Duration) -> [PreservationFailure] { checkpoint(within: deadline - alarms.heartbeat.running) }

    /// Has all stores let go of what a frozen process must not hold (C48). After the last checkpoint.
    func relinquish() {
        let (items, ledger) = state.withLock { ($0.items + $0.scenes, $0.ledger) }
        for item in items { item.store.relinquish() }
        ledger?.relinquish()
    }

    private enum Outcome {
        case saved
        case failed(any Error)
    }

    /// A checkpoint of several items, and who waits for it.
    private final class Round: Sendable {
        private struct State {
            var outcomes: [Outcome?]
            var left: Int
            var isExpired = false
        }

        private let state: Mutex<State>
        private let parker = Parker()

        init(count: Int) { state = Mutex(State(outcomes: Array(repeating: nil, count: count), left: count)) }

        func finish(_ index: Int, _ failure: (any Error)?) {
            state.withLock { state in
                state.outcomes[index] = failure.map { .failed($0) } ?? .saved
                state.left -= 1
            }
            parker.unpark()
        }

        func expire() {
            state.withLock { $0.isExpired = true }
            parker.unpark()
        }

        func wait(_ alarms: Alarms) -> [Outcome?] {
            while true {
                let outcomes = state.withLock { $0.left == 0 || $0.isExpired ? $0.outcomes : nil }
                if let outcomes { return outcomes }
                alarms.wait(on: parker)
            }
        }
    }
}
