/// The bound that no policy exceeds (Belady 1966, with the newcomer itself among the candidates): evicts the key with
/// the latest next request.
struct OptimalReplay {
    /// The next use of a key that is not requested again.
    private static let never = UInt32.max

    /// Returns the hits of `requests` with room for `capacity` entries.
    ///
    /// - Parameter keyCount: upper bound of all keys, exclusive.
    static func hits(_ requests: [UInt32], keyCount: Int, capacity: Int) -> Int {
        let nextUses = nextUses(requests, keyCount: keyCount)
        // The next request of each held key, latest first. Times are unique, so they stand for the keys.
        var latest = TimeHeap()
        var isHeld = Array(repeating: false, count: keyCount)
        var hits = 0, held = 0
        for (time, key) in requests.enumerated() {
            if isHeld[Int(key)] {
                hits += 1
            } else {
                held += 1
            }
            // A key that is never requested again leaves at once, which costs no hit.
            isHeld[Int(key)] = nextUses[time] != never
            if isHeld[Int(key)] { latest.insert(nextUses[time]) } else { held -= 1 }
            if held > capacity, let farthest = latest.removeLatest() {
                isHeld[Int(requests[Int(farthest)])] = false
                held -= 1
            }
        }
        return hits
    }

    private static func nextUses(_ requests: [UInt32], keyCount: Int) -> [UInt32] {
        var next = Array(repeating: never, count: keyCount)
        var result = Array(repeating: never, count: requests.count)
        for (time, key) in requests.enumerated().reversed() {
            result[time] = next[Int(key)]
            next[Int(key)] = UInt32(time)
        }
        return result
    }
}

/// A binary heap with the latest time on top. Times gone by sink to the bottom and need no removal.
private struct TimeHeap {
    private var times: [UInt32] = []

    mutating func insert(_ time: UInt32) {
        times.append(time)
        var place = times.count - 1
        while place > 0, times[(place - 1) / 2] < time {
            times[place] = times[(place - 1) / 2]
            place = (place - 1) / 2
        }
        times[place] = time
    }

    mutating func removeLatest() -> UInt32? {
        guard let latest = times.first, let last = times.popLast(), !times.isEmpty else { return times.popLast() }
        var place = 0
        while true {
            var child = 2 * place + 1
            guard child < times.count else { break }
            if child + 1 < times.count, times[child + 1] > times[child] { child += 1 }
            guard times[child] > last else { break }
            times[place] = times[child]
            place = child
        }
        times[place] = last
        return latest
    }
}
