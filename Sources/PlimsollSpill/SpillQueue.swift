#if Spill
/// The queue of changes for a store: one item for each key, oldest first, bounded in bytes and items.
///
/// A value type: the owner synchronizes access, and releases the returned values outside the lock.
struct SpillQueue<Key: Hashable & Sendable, Value: Sendable> {
    enum Work {
        case put(Value, bytes: Int)
        case remove

        var bytes: Int { if case .put(_, let bytes) = self { bytes } else { 0 } }
    }

    private struct Entry {
        var number: UInt64
        var work: Work
    }

    struct Addition {
        /// Values that will not be written: replaced, or dropped as the oldest.
        var gone: [Value] = []
        /// Number of dropped items.
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
        var addition = Addition()
        if let old = takeOut(key), case .put(let value, _) = old { addition.gone.append(value) }
        // Written as a subtraction, because the sum of two sizes may overflow.
        while !entries.isEmpty, work.bytes > mostBytes - bytes || entries.count >= mostCount {
            // Dropping a removal frees no bytes.
            let wantsBytes = work.bytes > mostBytes - bytes
            guard let (_, oldest) = next(where: { !wantsBytes || $0.bytes > 0 }) else { break }
            switch oldest {
            case .put(let value, _): addition.gone.append(value)
            case .remove: addition.hasLostRemoval = true
            }
            addition.dropped += 1
        }
        last += 1
        entries[key] = Entry(number: last, work: work)
        order.append((key, last))
        bytes += work.bytes
        if order.count > 2 * entries.count + 64 { compact() }
        return addition
    }

    /// Dequeues the oldest item.
    mutating func next() -> (key: Key, work: Work)? { next { _ in true } }

    /// Drops values, oldest first, until `target` bytes are freed or no value is left. Removals stay.
    mutating func dropValues(_ target: Int) -> [Value] {
        var gone: [Value] = [], freed = 0
        while freed < target, let (_, work) = next(where: { if case .put = $0 { true } else { false } }),
            case .put(let value, let bytes) = work
        {
            gone.append(value)
            freed += bytes
        }
        return gone
    }

    /// Drops the removals. For use when no value in the store can be found any more.
    mutating func forgetRemovals() {
        entries = entries.filter { if case .put = $0.value.work { true } else { false } }
        compact()
    }

    private mutating func takeOut(_ key: Key) -> Work? {
        guard let entry = entries.removeValue(forKey: key) else { return nil }
        bytes -= entry.work.bytes
        return entry.work
    }

    private mutating func next(where isWanted: (Work) -> Bool) -> (key: Key, work: Work)? {
        var index = first
        while index < order.count {
            let (key, number) = order[index]
            if let entry = entries[key], entry.number == number {
                if isWanted(entry.work) {
                    if index == first { first += 1 }
                    return takeOut(key).map { (key, $0) }
                }
            } else if index == first {
                first += 1
            }
            index += 1
        }
        if entries.isEmpty { compact() }
        return nil
    }

    private mutating func compact() {
        order = order[first...].filter { entries[$0.key]?.number == $0.number }
        first = 0
    }
}
#endif
