/// S3-FIFO (Yang et al., SOSP 2023) as published, over entries of one size: the baseline for the log's policy.
///
/// Small queue 10 %, ghosts 0.9 times the entries, promotion at the first re-access. In the main queue, entries used
/// since their last pass are reinserted.
struct ReferenceS3FIFO {
    private enum Place: UInt8 { case nowhere, small, main }

    private static let mostUses: UInt8 = 3

    private let capacity: Int
    private let smallShare: Int
    private let ghostCapacity: Int
    private var place: [Place]
    private var uses: [UInt8]
    /// Value of `ghosts` when a key became a ghost; old ghosts have expired. Zero for never.
    private var ghostSince: [Int]
    private var ghosts = 0
    private var small = Ring()
    private var main = Ring()

    /// Creates an empty cache.
    ///
    /// - Parameter keyCount: upper bound of all keys, exclusive.
    init(capacity: Int, keyCount: Int) {
        self.capacity = capacity
        smallShare = max(1, capacity / 10)
        ghostCapacity = capacity * 9 / 10
        place = Array(repeating: .nowhere, count: keyCount)
        uses = Array(repeating: 0, count: keyCount)
        ghostSince = Array(repeating: 0, count: keyCount)
    }

    /// Requests a key. A miss inserts the key.
    ///
    /// - Returns: true for a hit.
    mutating func request(_ key: UInt32) -> Bool {
        let index = Int(key)
        if place[index] != .nowhere {
            uses[index] = min(uses[index] + 1, Self.mostUses)
            return true
        }
        while small.count + main.count >= capacity { evict() }
        let isGhost = ghostSince[index] > 0 && ghosts - ghostSince[index] < ghostCapacity
        ghostSince[index] = 0
        uses[index] = 0
        enter(key, isGhost ? .main : .small)
        return false
    }

    private mutating func enter(_ key: UInt32, _ queue: Place) {
        place[Int(key)] = queue
        if queue == .main { main.append(key) } else { small.append(key) }
    }

    private mutating func evict() {
        let fromSmall = small.count >= smallShare || main.count == 0
        let key = fromSmall ? small.removeFirst() : main.removeFirst()
        let index = Int(key)
        place[index] = .nowhere
        if uses[index] > 0 {
            uses[index] = fromSmall ? 0 : uses[index] - 1
            enter(key, .main)
        } else if fromSmall {
            ghosts += 1
            ghostSince[index] = ghosts
        }
    }

    /// First-in, first-out queue in an array that is compacted once half of the array is used up.
    private struct Ring {
        private var keys: [UInt32] = []
        private var first = 0
        var count: Int { keys.count - first }

        mutating func append(_ key: UInt32) { keys.append(key) }

        mutating func removeFirst() -> UInt32 {
            defer {
                first += 1
                if first > 1024, first * 2 > keys.count {
                    keys.removeSubrange(..<first)
                    first = 0
                }
            }
            return keys[first]
        }
    }
}
