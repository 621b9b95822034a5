@testable import Plimsoll

/// A memory of the hashes that have left the small queue.
protocol GhostMemory: ~Copyable {
    init()
    mutating func reserve(_ entries: Int)
    mutating func insert(_ hash: UInt32) -> Bool
    mutating func remove(_ hash: UInt32) -> Bool
}

extension GhostTable: GhostMemory {}

/// The ghost queue of the paper: exactly nine tenths of the number of entries, without collisions.
struct ExactGhosts: GhostMemory {
    private var moments: [UInt32: Int] = [:]
    private var clock = 0
    private var window: Int?

    mutating func reserve(_ entries: Int) { window = max(1, entries * 9 / 10) }

    mutating func insert(_ hash: UInt32) -> Bool {
        guard window != nil else { return false }
        clock += 1
        moments[hash] = clock
        return true
    }

    mutating func remove(_ hash: UInt32) -> Bool {
        guard let moment = moments.removeValue(forKey: hash), let window else { return false }
        return clock - moment < window
    }
}

/// S3-FIFO as `CacheTable` documents the policy, in arrays and with linear searches. A cache with one shard must match
/// this reference request by request.
struct CacheReference<Ghosts: GhostMemory & ~Copyable>: ~Copyable {
    struct Entry: Equatable {
        var key: Int
        var cost: Int
        var marks = 0
    }

    let limit: Int
    let hash: (Int) -> UInt32
    /// The two queues, each with the oldest entry first.
    private(set) var small = FIFO(), main = FIFO()
    private(set) var ghosts = Ghosts()
    private var hasForgotten = false
    /// Keys in the order in which their entries left.
    private(set) var left: [Int] = []

    /// A queue whose entries are found by key.
    struct FIFO {
        private(set) var entries: [Int: (entry: Entry, moment: Int)] = [:]
        private var order: [(key: Int, moment: Int)] = []
        private var first = 0
        private var clock = 0
        private(set) var cost = 0

        var count: Int { entries.count }
        subscript(key: Int) -> Entry? { entries[key]?.entry }

        mutating func append(_ entry: Entry) {
            clock += 1
            order.append((entry.key, clock))
            entries[entry.key] = (entry, clock)
            cost += entry.cost
        }

        /// Removes and returns the oldest entry.
        mutating func popFirst() -> Entry? {
            while first < order.count {
                let (key, moment) = order[first]
                first += 1
                // Skips an entry that was removed, or inserted again under the same key since.
                if let found = entries[key], found.moment == moment { return remove(key) }
            }
            return nil
        }

        @discardableResult
        mutating func remove(_ key: Int) -> Entry? {
            guard let found = entries.removeValue(forKey: key) else { return nil }
            cost -= found.entry.cost
            return found.entry
        }

        /// Changes an entry in place.
        mutating func change(_ key: Int, _ body: (inout Entry) -> Void) {
            guard var found = entries[key] else { return }
            cost -= found.entry.cost
            body(&found.entry)
            cost += found.entry.cost
            entries[key] = found
        }
    }

    init(limit: Int, hash: @escaping (Int) -> UInt32) { (self.limit, self.hash) = (limit, hash) }

    var count: Int { small.count + main.count }
    var cost: Int { small.cost + main.cost }

    /// Looks a key up. A hit only adds a mark, at most three.
    mutating func hits(_ key: Int) -> Bool {
        guard small[key] != nil || main[key] != nil else { return false }
        use(key) { _ in }
        return true
    }

    mutating func insert(_ key: Int, cost: Int) {
        var hasEvicted = false
        while self.cost - ((small[key] ?? main[key])?.cost ?? 0) + cost > limit {
            evict()
            hasEvicted = true
        }
        if small[key] != nil || main[key] != nil {
            use(key) { $0.cost = cost }
            left.append(key)
            // Only a new entry adds room for ghosts, and this entry is not new.
            return
        } else if ghosts.remove(hash(key)) {
            main.append(Entry(key: key, cost: cost))
        } else {
            small.append(Entry(key: key, cost: cost))
        }
        if hasEvicted || hasForgotten {
            ghosts.reserve(count)
            hasForgotten = false
        }
    }

    mutating func remove(_ key: Int) { if small.remove(key) ?? main.remove(key) != nil { left.append(key) } }

    /// Evicts the coldest entries until `target` is reached.
    mutating func release(_ target: Int) {
        let before = cost
        while before - cost < target, count > 0 { evict() }
    }

    private mutating func use(_ key: Int, _ body: (inout Entry) -> Void) {
        func used(_ entry: inout Entry) {
            entry.marks = min(3, entry.marks + 1)
            body(&entry)
        }
        small.change(key, used)
        main.change(key, used)
    }

    /// Evicts the oldest entry of the small queue while that queue has a tenth of the cost, otherwise of the main
    /// queue. An entry with a mark moves to the end of the main queue.
    private mutating func evict() {
        while true {
            let fromSmall = small.count > 0 && (main.count == 0 || small.cost >= cost / 10)
            guard var entry = fromSmall ? small.popFirst() : main.popFirst() else { return }
            if entry.marks > 0 {
                entry.marks = fromSmall ? 0 : entry.marks - 1
                main.append(entry)
                continue
            }
            if fromSmall, !ghosts.insert(hash(entry.key)) { hasForgotten = true }
            left.append(entry.key)
            return
        }
    }
}
