import ArgumentParser
import Plimsoll
import PlimsollDemos

/// Measures a cache in volatile memory: hits, inserts, memory overhead, and page faults of other memory in the same
/// group.
struct VolatileCacheBench: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "volatile")

    @Option(help: "Parts to measure: \(Part.allCases.map(\.rawValue).joined(separator: ", ")), separated by commas.")
    var parts = Part.allCases.map(\.rawValue).joined(separator: ",")
    @Option(help: "Seconds of each of the runs that time page faults.") var seconds = 8.0

    enum Part: String, CaseIterable { case hit, insert, rss, fault }

    private var chosen: [Part] { get throws { try Allowed.list(parts, "--parts") } }

    func validate() throws {
        try Allowed.seconds(seconds, "--seconds", in: 1...600)
        _ = try chosen
    }

    func run() throws {
        let chosen = try chosen
        try reportingFailure {
            for part in chosen {
                switch part {
                case .hit: hits()
                case .insert: inserts()
                case .rss: try footprint()
                case .fault: try VolatileFaults(length: .seconds(seconds)).report()
                }
            }
        }
    }

    private func hits() {
        for (name, size) in [("100B", 100), ("4KiB", 4096)] {
            let result = VolatileHits(valueSize: size, payload: 64 << 20).measure(rounds: 9)
            Bench.figure("volatile.hit-\(name)", result.copying.nanoseconds, "ns")
            Bench.figure("volatile.hit-\(name).ratio", result.copying.ratio, "ratio")
            Bench.figure("volatile.with-bytes-\(name)", result.lending.nanoseconds, "ns")
            Bench.figure("volatile.with-bytes-\(name).ratio", result.lending.ratio, "ratio")
        }
    }

    private func inserts() {
        let inserts = VolatileInserts(valueSize: 4096, payload: 256 << 20)
        Bench.figure("volatile.insert", inserts.refilling(rounds: 7), "GB/s")
        Bench.figure("volatile.insert-fresh", inserts.fresh(rounds: 7), "GB/s")
    }

    private func footprint() throws {
        for (name, size) in [(".256B", 256), ("", 1024), (".4KiB", 4096)] {
            Bench.figure("volatile.rss-over-payload\(name)", try VolatileFootprint.inChild(valueSize: size), "ratio")
        }
    }
}

/// A cache being filled, in a separate process.
struct VolatileFootprintCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "_volatile-rss", abstract: "Part of `plimsoll-bench`.", shouldDisplay: false)

    @Option var valueSize: Int

    func run() throws { Output.line(JSONLine.encode(VolatileFootprint(valueSize: valueSize).measure())) }
}

/// Memory requested beside a cache, in a separate process.
struct VolatileFaultsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "_volatile-faults", abstract: "Part of `plimsoll-bench`.", shouldDisplay: false)

    @Option var seconds: Double
    @Flag var filled = false

    func run() async throws {
        Output.line(JSONLine.encode(try await VolatileNeighbour(isFilled: filled).run(for: .seconds(seconds))))
    }
}
