import Plimsoll
import Synchronization

/// All preserved state: restoring at launch, saving on the way to the background, and the count of launches.
final class Preservation: Sendable {
    private struct State {
        var items: [PreservedItem] = []
        /// The items of the connected scenes. Each is restored when the scene connects, and saved together with the
        /// process's items.
        var scenes: [PreservedItem] = []
        var ledger: LaunchLedger?
        /// Number of consecutive launches that may fail before one starts clean.
        var launchLimit = 2
        /// The launch decision, set by `restore`. States registered later follow this decision.
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
            item,
            restoreNow: { [weak self] item in
                let launch = self?.state.withLock { $0.launch }
                return item.restore(cleanStartReason: launch?.cleanStartReason).map { result in
                    RestoreOutcome(
                        previousRun: launch?.previousRun ?? .unknown, cleanStartReason: launch?.cleanStartReason,
                        items: [.init(name: item.name, result: result)], problems: [])
                }
            },
            remove: { [weak self] item in self?.state.withLock { $0.items.removeAll { $0 === item } } })
        if hasLaunched { preserved.restore() }
        return preserved
    }

    /// Adds the state of a scene. Every checkpoint saves the item, from its restoration until `remove(scene:)`.
    func add(scene item: PreservedItem) { state.withLock { $0.scenes.append(item) } }

    /// Removes the item of a scene that has ended, or that preserves its state elsewhere.
    func remove(scene item: PreservedItem) {
        let removed = state.withLock { $0.scenes.remove(identicalTo: item) }
        withExtendedLifetime(removed) {}
    }

    /// Counts launches in `store` instead of the store of the state registered first.
    func countLaunches(in store: any StateStore, limit: Int) {
        let former = state.withLock { state in
            state.launchLimit = limit
            return exchange(&state.ledger, LaunchLedger(store: store, limit: limit))
        }
        // May hold the last reference to the application's store, which is released here, outside the lock.
        withExtendedLifetime(former) {}
    }

    /// The end of the previous run; `nil` before `restore`.
    var previousRun: PreviousRun? { state.withLock { $0.launch?.previousRun } }

    // MARK: - Launch

    /// Counts the launch and restores all state, in the order of registration, on the calling thread. Once per
    /// process.
    ///
    /// - Parameter evidence: the evidence of a black box on the end of the previous run.
    func restore(evidence: PreviousEnd? = nil) -> RestoreOutcome {
        let ledger = state.withLock { $0.ledger }
        let (beginning, problems) =
            ledger?.begin() ?? (
                LaunchRecord.Beginning(record: LaunchRecord(phase: .launching), previousRun: .unknown), []
            )
        // In one step: a state registered meanwhile is either among the items, or finds the launch and follows it.
        let items = state.withLock { state in
            state.launch = Launch(cleanStartReason: beginning.cleanStartReason, previousRun: beginning.previousRun)
            return state.items
        }
        let results = items.compactMap { item in
            item.restore(cleanStartReason: beginning.cleanStartReason).map {
                RestoreOutcome.Item(name: item.name, result: $0)
            }
        }
        return RestoreOutcome(
            previousRun: beginning.previousRun.refined(by: evidence), cleanStartReason: beginning.cleanStartReason,
            items: results,
            problems: problems)
    }

    /// Records that the process is up: state is restored, and a life-cycle state is reached. Blocks for a write.
    ///
    /// - Returns: The error if the record could not be written; this launch then counts as failed.
    func launched() -> String? { note { try $0.launched() } }

    /// Records that the process terminates in good order. Call last, after the last checkpoint. Blocks for a write.
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

    /// Saves all changed state, including that of scenes, concurrently. Waits at most `limit` of running time. Blocks
    /// the calling thread.
    ///
    /// A late save goes on, and is not started a second time meanwhile.
    ///
    /// - Returns: The items not saved in time, each with the reason.
    func checkpoint(within limit: Duration) -> [PreservationFailure] {
        let (items, scenes) = state.withLock { ($0.items, $0.scenes) }
        return save(items + scenes.filter(\.isRestored), within: limit)
    }

    /// Saves these items alone, as `checkpoint(within:)` does.
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
            case nil:
                PreservationFailure(
                    name: item.name,
                    reason:
                        "the save did not finish within \(limit); the state saved before stays in effect until it does")
            }
        }
    }

    /// Releases from all stores the resources that a frozen process must not hold (C48). Call after the last
    /// checkpoint.
    func relinquish() {
        let (items, ledger) = state.withLock { ($0.items + $0.scenes, $0.ledger) }
        for item in items { item.store.relinquish() }
        ledger?.relinquish()
    }

    private enum Outcome {
        case saved
        case failed(any Error)
    }

    /// A checkpoint of several items, with the thread that waits.
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
