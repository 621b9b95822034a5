#if Spill
import Plimsoll

/// The queue of changes for a store: one item for each key, oldest first, bounded in bytes and items.
///
/// A value type: the owner synchronizes access, and releases the returned values outside the lock.
struct SpillQueue<Key: Hashable & Sendable, Value: Sendable> {
    /// A value to be written.
    struct Put {
        var value: Value
        var bytes: Int
        /// Time left at `since`.
        var left = TimeLeft()
        var since = Duration.zero
        /// True if the value took the place of a removal. The store may then have an older value of the key.
        var hidesRemoval = false

        /// Returns the time left; `nil` if the value is no longer valid.
        func left(at now: Duration) -> TimeLeft? { left.after(now - since) }
    }

    enum Work {
        case put(Put)
        case remove

        var bytes: Int { if case .put(let put) = self { put.bytes } else { 0 } }
        /// True if an older value in the store would be stale without this work.
        var removes: Bool { if case .put(let put) = self { put.hidesRemoval } else { true } }
    }

    private struct Entry {
        var number: UInt64
        var work: Work
    }

    struct Addition {
        /// Values that will not be written: replaced, or dropped as the oldest.
        var gone: [Value] = []
        /// Number of dropped values.
        var dropped = 0
        /// True if a removal was dropped. The store may then still have stale values, so no value of the store may be
        /// used any more.
        var hasLostRemoval = false
    }

    private(set) var bytes = 0
    private var entries: [Key: Entry] = [:]
    /// Keys by number, oldest first, from index `first`. A key that was added again stands here twice; the older
    /// position is obsolete.
    private var order: [(key: Key, number: UInt64)] = []
    private var first = 0
    private var last: UInt64 = 0

    var count: Int { entries.count }
    var isEmpty: Bool { entries.isEmpty }

    func work(for key: Key) -> Work? { entries[key]?.work }

    mutating func add(_ key: Key, _ work: Work, mostBytes: Int, mostCount: Int) -> Addition {
        var addition = Addition(), work = work
        if let old = takeOut(key) {
            if case .put(let put) = old { addition.gone.append(put.value) }
            if case .put(var put) = work {
                put.hidesRemoval = old.removes
                work = .put(put)
            }
        }
        // Written as a subtraction, because the sum of two sizes may overflow.
        while !entries.isEmpty, work.bytes > mostBytes - bytes || entries.count >= mostCount {
            if work.bytes > mostBytes - bytes {
                // Dropping a removal frees no bytes.
                let values = dropValues(1)
                if values.isEmpty { break }
                addition.gone += values
                addition.dropped += values.count
            } else {
                guard let (_, oldest) = next() else { break }
                if oldest.removes { addition.hasLostRemoval = true }
                if case .put(let put) = oldest {
                    addition.gone.append(put.value)
                    addition.dropped += 1
                }
            }
        }
        last += 1
        entries[key] = Entry(number: last, work: work)
        order.append((key, last))
        bytes += work.bytes
        if order.count > 2 * entries.count + 64 { compact() }
        return addition
    }

    /// Dequeues the oldest item.
    mutating func next() -> (key: Key, work: Work)? {
        while first < order.count {
            let (key, number) = order[first]
            first += 1
            if entries[key]?.number == number { return takeOut(key).map { (key, $0) } }
        }
        compact()
        return nil
    }

    /// Drops values, oldest first, until `target` bytes are freed or no value is left. Removals stay, also those whose
    /// place a value took.
    mutating func dropValues(_ target: Int) -> [Value] {
        var gone: [Value] = [], freed = 0, index = first
        while freed < target, index < order.count {
            let (key, number) = order[index], entry = entries[key]
            if let entry, entry.number == number, case .put(let put) = entry.work {
                gone.append(put.value)
                freed += put.bytes
                bytes -= put.bytes
                entries[key] = put.hidesRemoval ? Entry(number: number, work: .remove) : nil
            }
            if index == first, entries[key]?.number != number { first += 1 }
            index += 1
        }
        if entries.isEmpty { compact() }
        return gone
    }

    /// Drops the removals. For use when no value in the store can be found any more.
    mutating func forgetRemovals() {
        entries = entries.compactMapValues { entry in
            guard case .put(var put) = entry.work else { return nil }
            put.hidesRemoval = false
            return Entry(number: entry.number, work: .put(put))
        }
        compact()
    }

    private mutating func takeOut(_ key: Key) -> Work? {
        guard let entry = entries.removeValue(forKey: key) else { return nil }
        bytes -= entry.work.bytes
        return entry.work
    }

    private mutating func compact() {
        order = order[first...].filter { entries[$0.key]?.number == $0.number }
        first = 0
    }
}
#endif
