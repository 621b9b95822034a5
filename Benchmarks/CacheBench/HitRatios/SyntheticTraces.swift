import PlimsollTesting

/// Streams of requests for machines without recorded ones: the most common patterns, each from a seed.
enum SyntheticTraces {
    /// Returns the traces with their seeds.
    static func all() -> [(trace: TraceFile, seed: UInt64)] {
        let makers: [(String, UInt64, (inout SeededGenerator) -> [UInt32])] = [
            ("synthetic-zipf", 1, zipf), ("synthetic-scans", 2, scans), ("synthetic-loop", 3, loop),
        ]
        return makers.map { name, seed, make in
            var random = SeededGenerator(seed: seed)
            let keys = make(&random)
            return (TraceFile(name, requests: keys, keyCount: Int(keys.max() ?? 0) + 1), seed)
        }
    }

    private static let requests = 1_000_000, keys = 100_000

    /// Returns requests whose popular keys stay popular.
    private static func zipf(_ random: inout SeededGenerator) -> [UInt32] {
        let zipf = Zipf(count: keys, skew: 0.9)
        return (0..<requests).map { _ in UInt32(zipf.next(using: &random)) }
    }

    /// Returns the same, with occasional scans of keys that no other request has.
    private static func scans(_ random: inout SeededGenerator) -> [UInt32] {
        let zipf = Zipf(count: keys, skew: 0.9)
        var result: [UInt32] = []
        while result.count < requests {
            for _ in 0..<20_000 { result.append(UInt32(zipf.next(using: &random))) }
            let start = Int.random(in: 0..<keys, using: &random)
            for step in 0..<10_000 { result.append(UInt32(keys + (start + step) % keys)) }
        }
        return result
    }

    /// Returns requests for a working set in order, again and again, among other requests: the worst case for LRU.
    private static func loop(_ random: inout SeededGenerator) -> [UInt32] {
        let zipf = Zipf(count: keys, skew: 0.7), length = keys / 10
        return (0..<requests).map { number in
            number % 3 == 0 ? UInt32(zipf.next(using: &random)) : UInt32(keys + number * 2 / 3 % length)
        }
    }
}
