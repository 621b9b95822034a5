import ArgumentParser
import Plimsoll
import PlimsollDemos

/// Compares hit ratios of a volatile cache on recorded request traces with those of the policy that the cache
/// follows.
struct TraceBench: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "traces")

    @Option(help: "Directory of *.txt.zst or *.txt files: one request a line, KEY or KEY,SIZE.", completion: .directory)
    var traces: String

    /// Capacities of the cache, in percent of a trace's unique keys.
    private static let sizes = [1, 5, 20]
    /// Value of every entry: many fit in a page, and segments keep their usual length.
    private static let value = [UInt8](repeating: 1, count: 1024)

    func run() throws {
        try reportingFailure {
            var losses: [Double] = []
            for path in try TraceFile.paths(in: traces) {
                let trace = try TraceFile(path)
                for size in Self.sizes {
                    let entries = max(1, trace.keyCount * size / 100)
                    let ours = percent(hits(trace, Self.cache(entries)), of: trace)
                    let reference = percent(referenceHits(trace, entries), of: trace)
                    Bench.figure("volatile.hit-ratio.\(trace.name).\(size)", ours, "percent")
                    Bench.figure("volatile.s3fifo-ratio.\(trace.name).\(size)", reference, "percent")
                    losses.append(reference - ours)
                }
            }
            Bench.figure("volatile.hit-ratio.mean-loss", losses.reduce(0, +) / Double(losses.count), "points")
            Bench.figure("volatile.hit-ratio.worst-loss", losses.max() ?? .nan, "points")
        }
    }

    /// Returns a cache with the capacity of `entries` entries side by side. Loss from the cache's granularity counts
    /// against the cache.
    private static func cache(_ entries: Int) -> VolatileCache<UInt64, [UInt8]> {
        let (header, key, page, sentinel) = (16, 8, 4096, 8)
        let bytes = entries * (header + key + value.count)
        let pages = (bytes + page - sentinel - 1) / (page - sentinel)
        return VolatileCache("trace", limit: ByteCount(pages * page))
    }

    private func hits(_ trace: TraceFile, _ cache: VolatileCache<UInt64, [UInt8]>) -> Int {
        var hits = 0
        for request in trace.requests {
            if cache.withBytes(forKey: UInt64(request), { _ in }) != nil {
                hits += 1
            } else {
                cache.insert(Self.value, forKey: UInt64(request))
            }
        }
        return hits
    }

    private func referenceHits(_ trace: TraceFile, _ entries: Int) -> Int {
        var reference = ReferenceS3FIFO(capacity: entries, keyCount: trace.keyCount)
        return trace.requests.reduce(0) { $0 + (reference.request($1) ? 1 : 0) }
    }

    private func percent(_ hits: Int, of trace: TraceFile) -> Double {
        100 * Double(hits) / Double(trace.requests.count)
    }
}
