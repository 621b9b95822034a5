import PlimsollTesting

/// Streams of requests for those who have no recorded ones: what caches meet most, each from its seed.
enum SyntheticTraces {
    /// Name, seed and the stream.
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

    /// What is wanted stays wanted.
    private static func zipf(_ random: inout SeededGenerator) -> [UInt32] {
        let zipf = Zipf(count: keys, skew: 0.9)
        return (0..<requests).map { _ in UInt32(zipf.next(using: &random)) }
    }

    /// The same, and now and then somebody reads a stretch of what nobody else wants.
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

    /// A working set gone through in order, again and again, among other requests: the worst for what was used least recently.
    private static func loop(_ random: inout SeededGenerator) -> [UInt32] {
        let zipf = Zipf(count: keys, skew: 0.7), length = keys / 10
        return (0..<requests).map { number in
            number % 3 == 0 ? UInt32(zipf.next(using: &random)) : UInt32(keys + number * 2 / 3 % length)
        }
    }
}
