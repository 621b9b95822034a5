import Plimsoll
import Synchronization

/// Counts failed launches, and records how the last run ended (C24).
///
/// The count prevents a state that kills the process at launch from doing so forever (T36).
final class LaunchLedger: Sendable {
    private let store: any StateStore
    private let limit: Int
    /// True once this run has begun. Only then is the end of the run written.
    private let hasBegun = Atomic<Bool>(false)

    init(store: any StateStore, limit: Int) {
        self.store = store
        self.limit = limit
    }

    /// Records that a launch begins, before any state is restored. Call once.
    ///
    /// - Returns: The decision for this launch, and the problems met. A launch that cannot be counted goes on.
    func begin() -> (beginning: LaunchRecord.Beginning, problems: [String]) {
        var problems: [String] = []
        var previous: LaunchRecord?
        var isUnreadable = false
        do {
            switch try store.load(StateName.launches) {
            case .absent: break
            case .setAside(let reason):
                isUnreadable = true
                problems.append("cannot read the count of launches: \(reason)")
            case .state(let bytes, _):
                previous = LaunchRecord(bytes)
                isUnreadable = previous == nil
            }
        } catch {
            isUnreadable = true
            problems.append("cannot read the count of launches: \(error)")
        }
        var isMarked = false
        do { isMarked = try store.isMarkedKilledByOperator() } catch {
            problems.append("cannot check for an operator's mark: \(error)")
        }

        var beginning = LaunchRecord.begin(after: previous, isMarked: isMarked, limit: limit)
        if isUnreadable, !isMarked { beginning.previousRun = .unknown }
        do {
            try store.write(StateName.launches, beginning.record.bytes)
            // The mark is removed only now: if it were removed first, a kill in between would lose the mark.
            if isMarked { try store.clearKilledByOperatorMark() }
        } catch {
            problems.append("cannot count this launch: \(error)")
        }
        // Relaxed: the calls that read this flag come later, from the thread that runs the life cycle.
        hasBegun.store(true, ordering: .relaxed)
        return (beginning, problems)
    }

    /// Records that the process is up. A later crash is not a failed launch.
    func launched() throws { try write(.running) }

    /// Records that the process terminates in good order.
    func ended() throws { try write(.ended) }

    func relinquish() { store.relinquish() }

    func markKilledByOperator() throws { try store.markKilledByOperator() }

    private func write(_ phase: LaunchRecord.Phase) throws {
        // Relaxed: as above.
        if hasBegun.load(ordering: .relaxed) { try store.write(StateName.launches, LaunchRecord(phase: phase).bytes) }
    }
}
