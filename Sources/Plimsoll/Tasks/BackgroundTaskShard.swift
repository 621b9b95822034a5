import Synchronization

/// The tasks begun by some of the threads, under a lock of their own.
///
/// Whether a task may begin is asked within that lock, and changed within it, so that a sweep and a begin can't miss each other (T5).
final class BackgroundTaskShard: Sendable {
    typealias Record = BackgroundTaskRecord

    /// All of it guarded by the lock.
    private struct State {
        var active = BackgroundTaskList()
        /// Those a sweep has counted out but not yet reached.
        var condemned = BackgroundTaskList()
        var expiring = BackgroundTaskList()
        var count = 0
        var expiringCount = 0
        /// Ended or given up so far; of those, asked to stop before they ended, given up, and dropped; and refused.
        var ended: UInt64 = 0
        var expired: UInt64 = 0
        var givenUp: UInt64 = 0
        var leaked: UInt64 = 0
        var refused: UInt64 = 0
        /// How many more may begin before room is asked for.
        var room = 0
        var refusal: BackgroundTaskRefusal.Cause?
        /// Whether the book wants to know when none is left.
        var isWatched = false
        /// Gone with its owner: tasks may outlive their manager.
        var book: BackgroundTaskRegistry?

        /// What is the same for all that leave; the handler is to be released after the lock.
        mutating func leave(_ record: Record, _ phase: Record.Phase) -> Record.Handler? {
            record.enter(phase)
            count -= 1
            room += 1
            ended += 1
            defer { record.handler = nil }
            return record.handler
        }
    }

    private let state = Mutex(State())
    // A cache line, so that no two shards' locks share one.
    private let padding: (UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0, 0, 0, 0, 0)

    /// Whose tasks these are; `nil` once it is gone.
    var book: BackgroundTaskRegistry? {
        get { state.withLock { $0.book } }
        set { state.withLock { $0.book = newValue } }
    }

    // MARK: One task

    /// Takes `record` in, or says why not. `.tooMany` says that room must be asked for.
    func begin(_ record: Record) -> BackgroundTaskRefusal.Cause? {
        state.withLock { state in
            if let refusal = state.refusal {
                state.refused += 1
                return refusal
            }
            guard state.room > 0 else { return .tooMany }
            state.room -= 1
            state.count += 1
            state.active.append(Unmanaged.passRetained(record))
            return nil
        }
    }

    /// Ends `record` unless it has ended; one that is dropped only if nobody has asked it to stop, as then its handler's work may go on without it.
    func end(_ record: Record, isDropped: Bool = false) {
        typealias Left = (handler: Record.Handler?, tells: Bool, book: BackgroundTaskRegistry?)
        let left: Left? = state.withLock { state in
            let phase = record.phase
            guard phase == .active || phase == .expiring && !isDropped else { return nil }
            if phase == .active {
                state.active.remove(record)
                if !state.condemned.isEmpty { state.condemned.remove(record) }
            } else {
                state.expiring.remove(record)
                state.expiringCount -= 1
                state.expired += 1
            }
            if isDropped { state.leaked += 1 }
            let handler = state.leave(record, .ended)
            let tells = phase == .expiring && state.expiringCount == 0 || state.isWatched && state.count == 0
            return (handler, tells, tells || isDropped ? state.book : nil)
        }
        // The handler and what it captures are released here, after the lock.
        guard let left else { return }
        if isDropped { left.book?.leaked(record) }
        if left.tells { left.book?.settle() }
        Unmanaged.passUnretained(record).release()
    }

    // MARK: All of them

    struct Tally {
        var count = 0
        var expiring = 0
        /// All that have left.
        var ended: UInt64 = 0
        /// Of them asked to stop first, given up, dropped.
        var expired: UInt64 = 0
        var givenUp: UInt64 = 0
        var leaked: UInt64 = 0
        /// Never begun.
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

    var tally: Tally {
        state.withLock { state in
            Tally(
                count: state.count, expiring: state.expiringCount, ended: state.ended, expired: state.expired, givenUp: state.givenUp,
                leaked: state.leaked, refused: state.refused)
        }
    }

    /// Whether any task is being asked to stop, or is to be.
    var isExpiring: Bool { state.withLock { $0.expiringCount > 0 || !$0.condemned.isEmpty } }

    /// One that was refused for want of room in all shards.
    func countRefused() { state.withLock { $0.refused += 1 } }

    /// From now on tasks begin or are refused like that; with `condemning`, those there are are to be asked to stop.
    func decree(_ refusal: BackgroundTaskRefusal.Cause?, isWatched: Bool, condemning: Bool) {
        state.withLock { state in
            state.refusal = refusal
            state.isWatched = isWatched
            if condemning { state.condemned.append(contentsOf: &state.active) }
        }
    }

    /// Some of the condemned, each with its handler, expiring from now on. Few at a time: others want the lock.
    func expireSome() -> [(Record, Record.Handler?)] {
        state.withLock { state in
            var some: [(Record, Record.Handler?)] = []
            while some.count < Self.few, let first = state.condemned.popFirst() {
                let record = first.takeUnretainedValue()
                state.expiring.append(first)
                state.expiringCount += 1
                record.enter(.expiring)
                some.append((record, record.handler))
                // A scope is told of its end as well.
                if case .blocking = record.handler { record.handler = nil }
            }
            return some
        }
    }

    /// Some of those that have been asked to stop and have not, given up, each with what is left of its handler.
    func giveUpSome() -> [(Record, Record.Handler?)] {
        state.withLock { state in
            var some: [(Record, Record.Handler?)] = []
            while some.count < Self.few {
                if let first = state.expiring.popFirst() {
                    state.expiringCount -= 1
                    state.givenUp += 1
                    let record = first.takeRetainedValue()
                    some.append((record, state.leave(record, .givenUp)))
                } else if let first = state.condemned.popFirst() {
                    state.givenUp += 1
                    let record = first.takeRetainedValue()
                    some.append((record, state.leave(record, .givenUp)))
                } else {
                    break
                }
            }
            return some
        }
    }

    private static let few = 256

    /// Oldest first, of those asked to stop before those not; at most so many of each.
    func records(atMost most: Int = .max) -> [Record] {
        state.withLock { state in
            var records: [Record] = []
            records.reserveCapacity(min(state.count, most))
            for list in [state.expiring, state.condemned, state.active] {
                var left = most
                list.forEach(while: { left > 0 }) {
                    records.append($0)
                    left -= 1
                }
            }
            return records
        }
    }

    // MARK: Room

    func addRoom(_ count: Int) { state.withLock { $0.room += count } }

    /// Gives up what it has not used.
    func takeRoom() -> Int {
        state.withLock { state in
            defer { state.room = 0 }
            return state.room
        }
    }
}
