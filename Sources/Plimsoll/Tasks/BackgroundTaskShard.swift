import Synchronization

/// The tasks begun by some of the threads, under one lock.
///
/// The permission to begin is both checked and changed within that lock, so that a sweep and a `begin` cannot miss
/// each other (T5).
final class BackgroundTaskShard: Sendable {
    typealias Record = BackgroundTaskRecord

    /// All fields are guarded by the lock.
    private struct State {
        var active = BackgroundTaskList()
        /// Tasks that a sweep has selected but not reached yet.
        var pendingExpiration = BackgroundTaskList()
        var expiring = BackgroundTaskList()
        var tally = Tally()
        /// Number of tasks that may begin before more capacity must be requested.
        var room = 0
        /// True if the place of a task that leaves goes to the registry, whose capacity was lowered.
        var paysBack = false
        var refusal: BackgroundTaskRefusal.Cause?
        /// True if the registry wants a notification when no task is left.
        var isWatched = false
        /// `nil` once the owner is gone: tasks may outlive their manager.
        var registry: BackgroundTaskRegistry?

        /// Common steps for every task that leaves. The caller must release the returned handler after the lock.
        mutating func leave(_ record: Record, _ phase: Record.Phase) -> Record.Handler? {
            record.enter(phase)
            tally.count -= 1
            if paysBack { registry?.addRoom(1) } else { room += 1 }
            tally.ended += 1
            return exchange(&record.handler, nil)
        }
    }

    private let state = Mutex(State())
    // Padding of a cache line, so that the locks of two shards never share one.
    private let padding: (UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0, 0, 0, 0, 0)

    /// Registry of these tasks; `nil` once the registry is gone.
    var registry: BackgroundTaskRegistry? {
        get { state.withLock { $0.registry } }
        set { state.withLock { $0.registry = newValue } }
    }

    // MARK: One task

    /// Adds `record`, or returns the reason for a refusal. On `.tooMany`, the caller must request more capacity.
    func begin(_ record: Record) -> BackgroundTaskRefusal.Cause? {
        state.withLock { state in
            if let refusal = state.refusal {
                state.tally.refused += 1
                return refusal
            }
            guard state.room > 0 else { return .tooMany }
            state.room -= 1
            state.tally.count += 1
            state.active.append(Unmanaged.passRetained(record))
            return nil
        }
    }

    /// Ends `record` unless already ended. A dropped task is ended only if not asked to stop yet, because otherwise
    /// its handler may still be at work.
    func end(_ record: Record, isDropped: Bool = false) {
        typealias Left = (handler: Record.Handler?, isLast: Bool, registry: BackgroundTaskRegistry?)
        let left: Left? = state.withLock { state in
            let phase = record.phase
            guard phase == .active || phase == .expiring && !isDropped else { return nil }
            if phase == .active {
                state.active.remove(record)
                if !state.pendingExpiration.isEmpty { state.pendingExpiration.remove(record) }
            } else {
                state.expiring.remove(record)
                state.tally.expiring -= 1
                state.tally.expired += 1
            }
            if isDropped { state.tally.leaked += 1 }
            let handler = state.leave(record, .ended)
            let isLast =
                phase == .expiring && state.tally.expiring == 0 || state.isWatched && state.tally.count == 0
            return (handler, isLast, isLast || isDropped ? state.registry : nil)
        }
        // The handler and its captures are released here, after the lock.
        guard let left else { return }
        if isDropped { left.registry?.leaked(record) }
        if left.isLast { left.registry?.finishIfDone() }
        Unmanaged.passUnretained(record).release()
    }

    // MARK: All tasks

    struct Tally {
        var count = 0
        var expiring = 0
        /// All tasks that have left.
        var ended: UInt64 = 0
        /// Parts of `ended`: asked to stop first, given up, dropped.
        var expired: UInt64 = 0
        var givenUp: UInt64 = 0
        var leaked: UInt64 = 0
        /// Tasks that were never begun.
        var refused: UInt64 = 0

        static func += (sum: inout Tally, other: Tally) {
            sum.count += other.count
            sum.expiring += other.expiring
            sum.ended += other.ended
            sum.expired += other.expired
            sum.givenUp += other.givenUp
            sum.leaked += other.leaked
            sum.refused += other.refused
        }
    }

    var tally: Tally { state.withLock { $0.tally } }

    /// Number of running tasks. Allocates nothing, even without optimization.
    var count: Int { state.withLock { $0.tally.count } }

    /// True if any task is being asked to stop, or is selected for that.
    var isExpiring: Bool { state.withLock { $0.tally.expiring > 0 || !$0.pendingExpiration.isEmpty } }

    /// Counts a task refused for lack of capacity in all shards.
    func countRefused() { state.withLock { $0.tally.refused += 1 } }

    /// Sets the refusal for tasks that begin from now on. With `expiring`, selects all active tasks to be asked
    /// to stop.
    func applyGate(_ refusal: BackgroundTaskRefusal.Cause?, isWatched: Bool, expiring: Bool) {
        state.withLock { state in
            state.refusal = refusal
            state.isWatched = isWatched
            if expiring { state.pendingExpiration.append(contentsOf: &state.active) }
        }
    }

    /// Moves some of the selected tasks to the expiring ones, and returns each with the handler. Few at a time, to
    /// limit the time under the lock.
    func expireSome() -> [(Record, Record.Handler?)] {
        state.withLock { state in
            var some: [(Record, Record.Handler?)] = []
            while some.count < Self.few, let first = state.pendingExpiration.popFirst() {
                let record = first.takeUnretainedValue()
                state.expiring.append(first)
                state.tally.expiring += 1
                record.enter(.expiring)
                some.append((record, record.handler))
                // A scope stays, because the scope is also notified when given up.
                if case .blocking = record.handler { record.handler = nil }
            }
            return some
        }
    }

    /// Gives up some of the tasks that were asked to stop, and returns each with the rest of its handler.
    func giveUpSome() -> [(Record, Record.Handler?)] {
        state.withLock { state in
            var some: [(Record, Record.Handler?)] = []
            while some.count < Self.few {
                let wasAsked = !state.expiring.isEmpty
                guard let first = wasAsked ? state.expiring.popFirst() : state.pendingExpiration.popFirst()
                else { break }
                if wasAsked { state.tally.expiring -= 1 }
                state.tally.givenUp += 1
                let record = first.takeRetainedValue()
                some.append((record, state.leave(record, .givenUp)))
            }
            return some
        }
    }

    private static let few = 256

    /// Returns the records, oldest first. Tasks asked to stop come before others, at most `most` of each kind.
    func records(atMost most: Int = .max) -> [Record] {
        state.withLock { state in
            var records: [Record] = []
            records.reserveCapacity(min(state.tally.count, most))
            for list in [state.expiring, state.pendingExpiration, state.active] {
                var left = most
                list.forEach(while: { left > 0 }) {
                    records.append($0)
                    left -= 1
                }
            }
            return records
        }
    }

    // MARK: Capacity

    func addRoom(_ count: Int) {
        state.withLock { state in
            state.room += count
            if count > 0 { state.paysBack = false }
        }
    }

    /// Returns the unused capacity of this shard, and sets the capacity to zero. With `paysBack`, the places of tasks
    /// that leave go to the registry until this shard is given capacity again.
    func takeRoom(paysBack: Bool = false) -> Int {
        state.withLock { state in
            if paysBack { state.paysBack = true }
            return exchange(&state.room, 0)
        }
    }
}
