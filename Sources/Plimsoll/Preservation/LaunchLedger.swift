import Synchronization

/// Counts launches that did not come up, so that a state that kills the process at launch does not kill it for ever (T36), and remembers how the
/// last run ended (C24).
final class LaunchLedger: Sendable {
    private let store: any StateStore
    private let limit: Int
    /// Whether this run has begun, so that its end is written.
    private let hasBegun = Atomic<Bool>(false)

    init(store: any StateStore, limit: Int) {
        self.store = store
        self.limit = limit
    }

    /// Writes down that a launch begins, before anything is restored. Call it once.
    ///
    /// - Returns: what to do, and what went wrong: a launch that cannot be counted goes on.
    func begin() -> (beginning: LaunchRecord.Beginning, problems: [String]) {
        var problems: [String] = []
        var previous: LaunchRecord?
        var isUnreadable = false
        do {
            switch try store.load(StateName.launches) {
            case .absent: break
            case .setAside(let reason):
                isUnreadable = true
                problems.append("the count of launches was not readable: \(reason)")
            case .state(let bytes, _):
                previous = LaunchRecord(bytes)
                isUnreadable = previous == nil
            }
        } catch {
            isUnreadable = true
            problems.append("the count of launches was not readable: \(error)")
        }
        var isMarked = false
        do { isMarked = try store.isMarkedKilledByOperator() } catch { problems.append("an operator's mark could not be looked for: \(error)") }

        var beginning = LaunchRecord.begin(after: previous, isMarked: isMarked, limit: limit)
        if isUnreadable, !isMarked { beginning.previousRun = .unknown }
        do {
            try store.write(StateName.launches, beginning.record.bytes)
            // Only now: were it taken away first, a kill in between would lose it.
            if isMarked { try store.clearKilledByOperatorMark() }
        } catch {
            problems.append("this launch is not counted: \(error)")
        }
        // Relaxed: the calls that look at it come later, from whoever runs the life cycle.
        hasBegun.store(true, ordering: .relaxed)
        return (beginning, problems)
    }

    /// The process is up: what kills it from now on is not its launch.
    func launched() throws { try write(.running) }

    /// The process terminates in good order.
    func ended() throws { try write(.ended) }

    func relinquish() { store.relinquish() }

    func markKilledByOperator() throws { try store.markKilledByOperator() }

    private func write(_ phase: LaunchRecord.Phase) throws {
        // Relaxed: as above.
        if hasBegun.load(ordering: .relaxed) { try store.write(StateName.launches, LaunchRecord(phase: phase).bytes) }
    }
}
