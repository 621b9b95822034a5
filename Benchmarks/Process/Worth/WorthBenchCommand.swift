import ArgumentParser
import Plimsoll
import PlimsollDemos

/// Compares ways to divide memory among caches, on recorded requests.
struct WorthBenchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "worth",
        abstract: "Divide memory among caches by worth, in proportion, and as the best division that never changes.",
        discussion: "Without a directory of traces, only the streams made from seeds are run.")

    @Option(help: "Directory of traces: *.txt or *.txt.zst, lines of KEY or KEY,SIZE.") var traces: String?
    @Option(help: "A mix of caches, instead of the usual scenarios; the format is in Benchmarks/README.md.") var mix:
        String?
    @Option(help: "Draw three caches that trade memory into this SVG file, and run nothing else.") var drawing: String?
    @Flag(help: "Run four processes under one limit, and time the division among 500 units, and nothing else.")
    var machine =
        false
    @Option(help: "Seconds of each half of the four processes.") var seconds = 60.0
    @Option(help: "Limit of the four processes.") var limit = ByteCount.mebibytes(256)
    @Option(help: "Requests a second in all, on a clock that the requests move.") var rate = 20_000.0
    @Option(help: "Runs of the measurement of time.") var runs = 9

    /// Load times of three caches in microseconds: equal, and different.
    private static let loads: [(name: String, microseconds: [Double])] = [
        ("equal", [1000, 1000, 1000]), ("1:3:10", [1000, 3000, 10_000]), ("10:1:3", [10_000, 1000, 3000]),
        ("1:10:100", [1000, 10_000, 100_000]),
    ]
    private static let mixes = [
        ["arc-oltp", "scarab-recs", "orm-busy"], ["arc-oltp", "arc-p3", "scarab-recs"],
        ["orm-busy", "arc-p3", "corda-vault"], ["cloudphysics-io", "corda-vault", "arc-oltp"],
    ]
    private static let parts = [0.05, 0.2]

    func validate() throws {
        guard rate.isFinite, rate > 0 else { throw ValidationError("--rate must be above 0, not \(rate)") }
        try Allowed.count(runs, "--runs", in: 1...100)
        try Allowed.seconds(seconds, "--seconds", in: 5...600)
        if mix != nil, traces == nil { throw ValidationError("--mix names traces: --traces is missing") }
    }

    func run() throws {
        try reportingFailure {
            if let drawing {
                let (mix, traces) = Streams.trade()
                return try File.write(SharesChart(mix, traces, rate: rate).svg, to: drawing)
            }
            if machine { return try divideMachine() }
            let library = try traces.map { try TraceLibrary($0) }, split = StaticSplit()
            if let mix, let library {
                let mix = try Mix(file: mix)
                let requests = MixedRequests(mix, try mix.caches.map { try library.trace($0.trace) })
                return report([compare(mix, requests, split)])
            }
            if let library {
                report(try recorded(library, split))
                let errors = try Set(Self.mixes.joined()).sorted().flatMap { name in
                    try Self.parts.map { part in
                        let error = LearningBench.error(try library.trace(name), part: part, rate: rate, split)
                        Output.line(
                            "# curve of \(name), \(Int(part * 100)) %: \(Text.number(error, decimals: 2)) points")
                        return error
                    }
                }
                Bench.figure("worth.curve.error", errors.reduce(0, +) / Double(errors.count), "points")
            } else {
                Output.error("without recorded requests: no directory of traces is named")
            }
            reportRobust(split)
            reportVolatile()
            let overhead = LearningBench.overhead(runs: runs)
            Bench.figure("worth.hit.overhead", overhead.hit, "ratio")
            Bench.figure("worth.insert.overhead", overhead.insert, "ratio")
        }
    }

    private func divideMachine() throws {
        DecisionBench(units: 500).runDividing()
        let bench = MachineBench(limit: limit, seconds: seconds, rate: rate / 2)
        do {
            let proportional = try bench.play(byWorth: false), worth = try bench.play(byWorth: true)
            // The oracle has the memory that either way found for caches.
            let least = max(1, bench.leastCost(bytes: max(proportional.held, worth.held)))
            Output.line(
                "# in proportion: to oracle \(Text.number(proportional.cost / least, decimals: 3)), \(proportional.kills) killed; caches held \(proportional.held >> 20) MiB, by worth \(worth.held >> 20) MiB"
            )
            Bench.figure("worth.machine.to-oracle", worth.cost / least, "ratio")
            Bench.figure("worth.machine.kills", Double(worth.kills), "count")
        } catch let refusal as GroupMaker.Refusal {
            throw Failure.unavailable("worth --machine: \(refusal); \(GroupMaker.Refusal.remedy)")
        }
    }

    private func recorded(_ library: TraceLibrary, _ split: StaticSplit) throws -> [Comparison] {
        var results: [Comparison] = []
        for names in Self.mixes {
            let traces = try names.map { try library.trace($0) }
            func mix(_ loads: (name: String, microseconds: [Double]), _ part: Double) -> Mix {
                let caches = zip(names, loads.microseconds).map { Mix.Cache(name: $0, trace: $0, loadMicroseconds: $1) }
                return Mix(
                    "\(names.joined(separator: "+")), \(Int(part * 100)) %, loads \(loads.name)", caches,
                    budget: .part(part))
            }
            let requests = MixedRequests(mix(Self.loads[0], Self.parts[0]), traces)
            for part in Self.parts {
                for loads in Self.loads { results.append(compare(mix(loads, part), requests, split)) }
            }
        }
        return results
    }

    /// Runs of a stream made from a seed. The sample of keys differs from run to run, so the median is reported.
    private static let sampleRuns = 5

    private func reportRobust(_ split: StaticSplit) {
        for (mix, traces) in Streams.robust() {
            let requests = MixedRequests(mix, traces)
            let results = (0..<Self.sampleRuns).map { _ in compare(mix, requests, split) }
            Bench.figure("worth.robust.\(mix.name)", median(results.map(\.toBest)) ?? 0, "ratio")
            guard mix.name == "scan-dear" else { continue }
            // The hits of the others, of those that they have with the best division.
            let best = split.best(mix, requests, budget: requests.bytes(of: mix.budget))
            let others = requests.streams(mix).enumerated().dropFirst()
            func hits(_ misses: (Int) -> Int) -> Double {
                Double(others.reduce(0) { $0 + $1.element.requests.count - misses($1.offset) })
            }
            let bestHits = hits { split.misses(requests.streams(mix)[$0], bytes: best.shares[$0]) }
            let kept = results.map { result in 100 * hits { result.misses[$0] } / max(1, bestHits) }
            Bench.figure("worth.robust.scan-neighbours", median(kept) ?? 0, "percent")
        }
        let (mix, traces) = Streams.shift()
        let ratios = (0..<Self.sampleRuns).map { _ in shift(mix, traces, split) }
        Bench.figure("worth.shift.to-static-best", median(ratios) ?? 0, "ratio")
    }

    /// Reports idle memory divided among volatile caches.
    private func reportVolatile() {
        let (mix, traces) = Streams.volatile()
        let requests = MixedRequests(mix, traces), budget = requests.bytes(of: mix.budget)
        func cost(_ way: SharedCaches.Way) -> Double {
            let caches = SharedCaches(mix, budget: budget, way, rate: rate, isVolatile: true)
            for request in requests.requests { caches.request(request) }
            Output.line("# volatile, \(way): \(caches.held.map { $0 >> 20 }) MiB held of \(budget >> 20)")
            return zip(caches.misses, mix.caches).reduce(0) { $0 + Double($1.0) * $1.1.loadMicroseconds }
        }
        Bench.figure("worth.volatile.to-proportional", cost(.byWorth) / cost(.proportional), "ratio")
    }

    /// Returns the cost of the second half of a run in which two caches swap their streams in the middle, to that of
    /// the best division of the second half.
    private func shift(_ mix: Mix, _ traces: [TraceFile], _ split: StaticSplit) -> Double {
        let requests = MixedRequests(mix, traces), budget = requests.bytes(of: mix.budget)
        let caches = SharedCaches(mix, budget: budget, .byWorth, rate: rate), middle = requests.requests.count / 2
        for request in requests.requests[..<middle] { caches.request(request) }
        let before = caches.misses
        for request in requests.requests[middle...] { caches.request(request) }
        let cost = zip(zip(caches.misses, before), mix.caches).reduce(0) {
            $0 + Double($1.0.0 - $1.0.1) * $1.1.loadMicroseconds
        }
        // After the swap no cache has a key of its new stream, so the best division begins cold as well.
        let halves = traces.map {
            TraceFile(
                $0.name + ", second half", requests: Array($0.requests.suffix(Streams.shiftLength / 2)),
                keyCount: $0.keyCount)
        }
        let second = Mix(mix.name, mix.caches, budget: mix.budget)
        return cost / split.best(second, MixedRequests(second, halves), budget: budget).cost
    }

    struct Comparison {
        var mix: Mix
        var toBest: Double
        var toProportional: Double
        var hasEqualLoads: Bool
        var misses: [Int]
    }

    private func compare(_ mix: Mix, _ requests: MixedRequests, _ split: StaticSplit) -> Comparison {
        let budget = requests.bytes(of: mix.budget)
        func cost(_ way: SharedCaches.Way) -> (cost: Double, caches: SharedCaches) {
            let caches = SharedCaches(mix, budget: budget, way, rate: rate)
            for request in requests.requests { caches.request(request) }
            let cost = zip(caches.misses, mix.caches).reduce(0) { $0 + Double($1.0) * $1.1.loadMicroseconds }
            return (cost, caches)
        }
        let best = split.best(mix, requests, budget: budget), proportional = cost(.proportional), worth = cost(.byWorth)
        let result = Comparison(
            mix: mix, toBest: worth.cost / best.cost, toProportional: worth.cost / proportional.cost,
            hasEqualLoads: Set(mix.caches.map(\.loadMicroseconds)).count == 1, misses: worth.caches.misses)
        func shares(_ bytes: [Int]) -> String { bytes.map { "\($0 * 100 / max(1, budget))" }.joined(separator: "/") }
        Output.line(
            "# \(mix.name): to best \(Text.number(result.toBest, decimals: 3)), proportional to best"
                + " \(Text.number(proportional.cost / best.cost, decimals: 3)), shares in percent: best \(shares(best.shares)), by worth"
                + " \(shares(worth.caches.held)), proportional \(shares(proportional.caches.held)), \(worth.caches.rounds) rounds"
        )
        return result
    }

    private func report(_ results: [Comparison]) {
        func mean(_ numbers: [Double]) -> Double { numbers.reduce(0, +) / Double(max(1, numbers.count)) }
        Bench.figure("worth.miss-cost.to-static-best", mean(results.map(\.toBest)), "ratio")
        Bench.figure("worth.miss-cost.to-static-best.worst", results.map(\.toBest).max() ?? 0, "ratio")
        let different = results.filter { !$0.hasEqualLoads }.map(\.toProportional)
        if !different.isEmpty { Bench.figure("worth.miss-cost.to-proportional", mean(different), "ratio") }
        let equal = results.filter(\.hasEqualLoads).map(\.toProportional)
        if !equal.isEmpty { Bench.figure("worth.miss-cost.to-proportional.equal", mean(equal), "ratio") }
        Bench.figure("worth.miss-cost.to-proportional.worst", results.map(\.toProportional).max() ?? 0, "ratio")
    }
}

/// Traces of a directory, each read once.
private final class TraceLibrary {
    private let directory: String
    private let paths: [String]
    private var known: [String: TraceFile] = [:]

    init(_ directory: String) throws {
        self.directory = directory
        paths = try TraceFile.paths(in: directory)
    }

    func trace(_ name: String) throws -> TraceFile {
        if let known = known[name] { return known }
        guard let path = paths.first(where: { $0.hasSuffix("/\(name).txt") || $0.hasSuffix("/\(name).txt.zst") }) else {
            throw Failure.unavailable("\(printable(directory)) has no trace \(printable(name))")
        }
        let file = try TraceFile(path)
        known[name] = file
        return file
    }
}
