/// S3-FIFO (Yang et al., SOSP 2023) by the book, over entries of one size: what the log's policy is held against.
///
/// Small queue 10 %, ghosts 0.9 times the entries, kept at the first re-access, and a main queue in which what was asked for goes round again.
struct ReferenceS3FIFO {
    private enum Place: UInt8 { case nowhere, small, main }

    private static let mostUses: UInt8 = 3

    private let capacity: Int
    private let smallShare: Int
    private let ghostCapacity: Int
    private var place: [Place]
    private var uses: [UInt8]
    /// When a key became a ghost, in ghosts so far; old ones have fallen out. Zero for never.
    private var ghostSince: [Int]
    private var ghosts = 0
    private var small = Ring()
    private var main = Ring()

    /// - Parameter keyCount: keys are below it.
    init(capacity: Int, keyCount: Int) {
        self.capacity = capacity
        smallShare = max(1, capacity / 10)
        ghostCapacity = capacity * 9 / 10
        place = Array(repeating: .nowhere, count: keyCount)
        uses = Array(repeating: 0, count: keyCount)
        ghostSince = Array(repeating: 0, count: keyCount)
    }

    /// Asks for a key and lets a miss insert it.
    ///
    /// - Returns: whether it was a hit.
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

    /// First in, first out, in an array that is moved up when half of it is used up.
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
