import ArgumentParser
import Foundation

/// Measures hit ratios on streams of requests.
struct HitRatioCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "hit-ratio",
        abstract: "Hit ratios of PurgeableCache beside the best possible, exact LRU, and S3-FIFO by the book.")

    @Option(
        help: "A directory of *.txt.zst or *.txt: one request a line, KEY or KEY,SIZE. None: streams made from seeds.",
        completion: .directory)
    var traces: String?
    @Option(help: "Only traces whose name contains this.") var only: String?
    @Option(help: "Where to write the results for charts.", completion: .file()) var results: String?

    /// Shares of a trace's unique keys that the cache has room for, in percent.
    private static let sizes = [1, 5, 20]

    /// One trace at one size.
    struct Cell: Codable {
        var trace: String
        var size: Int
        var result: Replay.Result
    }

    func run() throws {
        try reportingFailure {
            var cells: [Cell] = []
            if let traces, !traces.isEmpty {
                for path in try TraceFile.paths(in: traces) where only.map(path.contains) ?? true {
                    cells += measure(try TraceFile(path))
                }
            } else {
                for (trace, seed) in SyntheticTraces.all() where only.map(trace.name.contains) ?? true {
                    Output.line("# \(trace.name): seed \(seed)")
                    cells += measure(trace)
                }
            }
            guard !cells.isEmpty else { throw Failure.failed("no trace is named so") }
            for (name, peer) in [("s3fifo", \Replay.Result.s3fifo), ("lru", \.leastRecentlyUsed)] {
                let differences = cells.map { $0.result.ours - $0.result[keyPath: peer] }
                CacheBench.figure(
                    "cache.hit-ratio.mean-vs-\(name)", differences.reduce(0, +) / Double(cells.count), "points")
                CacheBench.figure("cache.hit-ratio.worst-vs-\(name)", differences.min() ?? .nan, "points")
            }
            if let results { try File.write(String(decoding: JSONEncoder().encode(cells), as: UTF8.self), to: results) }
        }
    }

    private func measure(_ trace: TraceFile) -> [Cell] {
        let cells = Self.sizes.map { size in
            let capacity = max(1, trace.keyCount * size / 100), name = "cache.hit-ratio.\(trace.name).\(size)"
            let result = Replay(trace: trace).run(capacity: capacity)
            CacheBench.figure(name, result.ours, "percent")
            CacheBench.figure(name + ".opt", result.optimal, "percent")
            CacheBench.figure(name + ".lru", result.leastRecentlyUsed, "percent")
            CacheBench.figure(name + ".s3fifo", result.s3fifo, "percent")
            return Cell(trace: trace.name, size: size, result: result)
        }
        if !trace.sizes.isEmpty { measureBytes(trace) }
        return cells
    }

    /// Measures with room for a share of the bytes of all keys instead of their number.
    private func measureBytes(_ trace: TraceFile) {
        let bytes = trace.sizes.reduce(0) { $0 + Int($1) }
        for size in Self.sizes {
            let (ours, lru) = Replay(trace: trace).run(budget: bytes * size / 100),
                name = "cache.hit-ratio.\(trace.name)-bytes.\(size)"
            CacheBench.figure(name, ours.requests, "percent")
            CacheBench.figure(name + ".lru", lru.requests, "percent")
            CacheBench.figure(name + ".of-bytes", ours.bytes, "percent")
            CacheBench.figure(name + ".of-bytes.lru", lru.bytes, "percent")
        }
    }
}
