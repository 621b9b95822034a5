import Plimsoll
import PlimsollDemos

/// The requests of four processes under one limit, in two halves: in the second, two pairs of processes have swapped
/// their streams.
enum MachineMix {
    static let names = ["one", "two", "three", "four"]
    /// Load time of each process in microseconds.
    static let loads = [1000.0, 1000, 3000, 1000]
    /// Bytes of a value, and of an entry.
    static let valueBytes = 8192, entryBytes = valueBytes + 96

    private static let kinds: [(keys: Int, skew: Double)] = [(4000, 0.9), (40_000, 0.7), (10_000, 0.9), (20_000, 0.8)]
    private static let owners = [[0, 1, 2, 3], [1, 0, 3, 2]]

    /// Returns `count` requests of a process in a half.
    static func trace(_ process: Int, half: Int, count: Int) -> TraceFile {
        let kind = owners[half][process], (keys, skew) = kinds[kind]
        return Streams.zipf("stream \(kind)", keys: keys, skew: skew, seed: UInt64(100 + kind * 2 + half), count: count)
    }

    /// Returns the least cost of a half in microseconds, with memory of `bytes` that is divided best and never changes.
    static func leastCost(half: Int, count: Int, bytes: Int, _ split: StaticSplit) -> Double {
        let traces = names.indices.map { process in
            let trace = trace(process, half: half, count: count)
            return TraceFile("\(names[process]), half \(half)", requests: trace.requests, keyCount: trace.keyCount)
        }
        let caches = zip(traces, loads).map { Mix.Cache(name: $0.name, trace: $0.name, loadMicroseconds: $1) }
        let budget = Int(Double(bytes) / Double(entryBytes) * Double(MixedRequests.usualCost))
        let mix = Mix("machine", caches, budget: .bytes(budget))
        return split.best(mix, MixedRequests(mix, traces), budget: budget).cost
    }
}
