import Synchronization

/// The state of one task: 120 bytes, so that a million tasks take no more memory than a cache would.
// Unchecked: `handler`, `refusal` before the task is published, and the two links are guarded by the lock of
// `shard`; the rest is constant or atomic.
package final class BackgroundTaskRecord: @unchecked Sendable {
    enum Phase: UInt8, Comparable {
        case active, expiring, ended, givenUp

        static func < (left: Phase, right: Phase) -> Bool { left.rawValue < right.rawValue }
    }

    package enum Handler: Sendable {
        /// A handler of the application; may block.
        case blocking(@Sendable (BackgroundTask, ExpirationReason) -> Void)
        /// Work in a scope of its own.
        case scope(BackgroundScope)
    }

    let name: String
    /// `nil` once the handler was called, or can no longer be called.
    var handler: Handler?
    private let phaseBits = Atomic<UInt8>(Phase.active.rawValue)
    var refusal: BackgroundTaskRefusal.Cause?
    private let line: UInt32
    private let file: UnsafePointer<UInt8>
    let shard: BackgroundTaskShard
    let begun: Duration
    var older: Unmanaged<BackgroundTaskRecord>?
    var newer: Unmanaged<BackgroundTaskRecord>?
    // Relaxed: numbers for a report, independent of each other.
    private let completed = Atomic<Int>(0)
    private let total = Atomic<Int>(0)

    init(
        _ name: String, _ file: StaticString, _ line: UInt, begun: Duration, shard: BackgroundTaskShard,
        handler: Handler?
    ) {
        self.name = name
        self.handler = handler
        self.file = file.utf8Start
        self.line = UInt32(truncatingIfNeeded: line)
        self.begun = begun
        self.shard = shard
    }

    // Acquire and release ordering: writes of the work before its end are visible to any thread that sees the end.
    var phase: Phase { Phase(rawValue: phaseBits.load(ordering: .acquiring)) ?? .ended }

    /// Changes the phase. Called only under the shard's lock, so that exactly one of ended and expired wins (T4).
    func enter(_ phase: Phase) { phaseBits.store(phase.rawValue, ordering: .releasing) }

    func setProgress(_ done: Int, _ all: Int) {
        completed.store(done, ordering: .relaxed)
        total.store(all, ordering: .relaxed)
    }

    func status(at now: Duration) -> BackgroundTaskStatus {
        BackgroundTaskStatus(
            name: name, age: now - begun, isExpiring: phase == .expiring, origin: "\(String(cString: file)):\(line)",
            completed: completed.load(ordering: .relaxed), total: total.load(ordering: .relaxed))
    }
}

/// A doubly linked list of records, oldest first. Owns a reference to each record; removal passes that reference to
/// the caller.
// Unchecked: part of the state of a shard, guarded by the shard's lock.
struct BackgroundTaskList: @unchecked Sendable {
    private(set) var oldest: Unmanaged<BackgroundTaskRecord>?
    private var newest: Unmanaged<BackgroundTaskRecord>?

    var isEmpty: Bool { oldest == nil }

    mutating func append(_ record: Unmanaged<BackgroundTaskRecord>) {
        record._withUnsafeGuaranteedRef {
            $0.older = newest
            $0.newer = nil
        }
        if let newest { newest._withUnsafeGuaranteedRef { $0.newer = record } } else { oldest = record }
        newest = record
    }

    mutating func popFirst() -> Unmanaged<BackgroundTaskRecord>? {
        guard let first = oldest else { return nil }
        first._withUnsafeGuaranteedRef { remove($0) }
        return first
    }

    /// Removes `record` if the record is at an end of this list, or in the middle of any list.
    mutating func remove(_ record: BackgroundTaskRecord) {
        let (older, newer) = (record.older, record.newer)
        if let older {
            older._withUnsafeGuaranteedRef { $0.newer = newer }
        } else if isFirst(record) {
            oldest = newer
        }
        if let newer {
            newer._withUnsafeGuaranteedRef { $0.older = older }
        } else if isLast(record) {
            newest = older
        }
    }

    private func isFirst(_ record: BackgroundTaskRecord) -> Bool {
        oldest?.toOpaque() == Unmanaged.passUnretained(record).toOpaque()
    }
    private func isLast(_ record: BackgroundTaskRecord) -> Bool {
        newest?.toOpaque() == Unmanaged.passUnretained(record).toOpaque()
    }

    /// Appends all records of `other`, and empties `other`.
    mutating func append(contentsOf other: inout BackgroundTaskList) {
        guard let first = other.oldest else { return }
        if let newest {
            newest._withUnsafeGuaranteedRef { $0.newer = first }
            first._withUnsafeGuaranteedRef { $0.older = newest }
        } else {
            oldest = first
        }
        newest = other.newest
        other = BackgroundTaskList()
    }

    func forEach(while goesOn: () -> Bool = { true }, _ body: (BackgroundTaskRecord) -> Void) {
        var next = oldest
        while goesOn(), let record = next {
            record._withUnsafeGuaranteedRef {
                body($0)
                next = $0.newer
            }
        }
    }
}
