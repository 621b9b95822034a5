import Plimsoll
import PlimsollDemos
import PlimsollTesting

/// Requests that memory is hard to divide for.
enum Streams {
    /// Requests of a stream. Runs of two or three caches then have two to four million, as most recorded ones.
    static let length = 1_000_000, shiftLength = 1_500_000

    /// Some keys are popular.
    static func zipf(
        _ name: String, keys: Int, skew: Double = 0.9, seed: UInt64, count: Int = length, size: UInt32? = nil
    ) -> TraceFile {
        var random = SeededGenerator(seed: seed)
        let zipf = Zipf(count: keys, skew: skew)
        return TraceFile(
            name, requests: (0..<count).map { _ in UInt32(zipf.next(using: &random)) }, keyCount: keys, size: size)
    }

    /// All keys in turn, again and again.
    static func loop(_ name: String, keys: Int) -> TraceFile {
        TraceFile(name, requests: (0..<length).map { UInt32($0 % keys) }, keyCount: keys)
    }

    /// Each key once.
    static func scan(_ name: String) -> TraceFile {
        TraceFile(name, requests: Array(0..<UInt32(length)), keyCount: length)
    }

    /// Mixes with their traces. The budget is 20,000 keys.
    static func robust() -> [(mix: Mix, traces: [TraceFile])] {
        let budget = 20_000 * Int(MixedRequests.usualCost)
        let popular = zipf("popular", keys: 40_000, seed: 1), other = zipf("other", keys: 40_000, seed: 2)
        func mix(_ name: String, _ caches: [(TraceFile, Double)]) -> (Mix, [TraceFile]) {
            let caches = caches.map {
                (cache: Mix.Cache(name: $0.name, trace: $0.name, loadMicroseconds: $1), trace: $0)
            }
            return (Mix(name, caches.map(\.cache), budget: .bytes(budget)), caches.map(\.trace))
        }
        return [
            mix("loop-nearly", [(loop("loop of 18,000", keys: 18_000), 1000), (popular, 1000), (other, 1000)]),
            mix("loop-dear", [(loop("loop of 60,000", keys: 60_000), 20_000), (popular, 1000), (other, 1000)]),
            mix("scan-dear", [(scan("scan"), 20_000), (popular, 1000), (other, 1000)]),
        ]
    }

    /// Three caches whose loads differ, with room for a quarter of their entries.
    static func volatile() -> (mix: Mix, traces: [TraceFile]) {
        let traces = [(6, 0.9), (7, 0.9), (8, 0.7)].map { seed, skew in
            zipf("stream \(seed)", keys: 40_000, skew: skew, seed: seed, size: 4000)
        }
        let caches = zip(traces, [1000.0, 10_000, 3000]).map {
            Mix.Cache(name: $0.name, trace: $0.name, loadMicroseconds: $1)
        }
        return (Mix("volatile", caches, budget: .part(0.25)), traces)
    }

    /// Three caches, two of which swap their streams in the middle of the run.
    static func trade() -> (mix: Mix, traces: [TraceFile]) {
        let traces = [
            zipf("first", keys: 5000, seed: 3), zipf("second", keys: 80_000, skew: 0.7, seed: 4),
            zipf("third", keys: 4000, seed: 5),
        ]
        let caches = traces.map { Mix.Cache(name: $0.name, trace: $0.name, loadMicroseconds: 1000) }
        return (
            Mix(
                "trade", caches, budget: .bytes(20_000 * Int(MixedRequests.usualCost)),
                shifts: [.init(at: 0.5, first: "first", second: "second")]), traces
        )
    }

    /// Two caches that swap their streams in the middle of the run.
    static func shift() -> (mix: Mix, traces: [TraceFile]) {
        let traces = [
            zipf("narrow", keys: 5000, seed: 3, count: shiftLength),
            zipf("wide", keys: 80_000, skew: 0.7, seed: 4, count: shiftLength),
        ]
        let caches = traces.map { Mix.Cache(name: $0.name, trace: $0.name, loadMicroseconds: 1000) }
        return (
            Mix(
                "shift", caches, budget: .bytes(20_000 * Int(MixedRequests.usualCost)),
                shifts: [.init(at: 0.5, first: "narrow", second: "wide")]), traces
        )
    }
}
