import ArgumentParser
import Plimsoll
import PlimsollDemos

/// Measures the begin and end of accesses to a volatile buffer.
struct BufferCommand: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "buffer")

    @Option(help: "Bytes of the buffer.") var size = ByteCount.mebibytes(64)
    @Option(help: "Accesses measured.") var rounds = 200

    func validate() throws {
        try Allowed.size(size, "--size", in: .mebibytes(1)...(.gibibytes(1)))
        try Allowed.count(rounds, "--rounds", in: 8...100_000)
    }

    func run() throws {
        try reportingFailure {
            let bench = BufferBench(size: size, rounds: rounds)
            for (name, usesHugePages) in [("buffer", false), ("buffer.huge", true)] {
                let result = try bench.run(usesHugePages: usesHugePages)
                Bench.figure(name + ".pin", result.begin, "us/MiB")
                Bench.figure(name + ".unpin", result.end, "us/MiB")
                Bench.figure(name + ".refault", result.refault, "us/MiB")
                Bench.figure(name + ".ratio", (result.begin + result.end) / result.refault, "x")
            }
        }
    }
}

/// Checks every byte of volatile memory while the kernel reclaims pages.
struct TortureCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "torture",
        abstract: "Check every byte of volatile memory while the kernel reclaims pages; status 1 if one was wrong.")

    @Option(help: "Pages to read before the end.") var reads = 10_000_000
    @Option(help: "Maximum number of seconds.") var seconds = 120.0
    @Option(help: "Number of reading threads.") var threads = 4
    @Option(help: "Seed of all choices; a random one by default.") var seed: UInt64?
    @Option(
        help:
            "Have the kernel reclaim pages for lack of memory, in a group with this limit, instead of on request (MADV_PAGEOUT)."
    )
    var limit: ByteCount?
    @Option(help: .private) var squeeze: ByteCount?

    func validate() throws {
        try Allowed.count(reads, "--reads", in: 1...Int.max)
        try Allowed.seconds(seconds, "--seconds", in: 0.1...86_400)
        try Allowed.count(threads, "--threads", in: 1...64)
        try Allowed.size(limit, "--limit", in: .mebibytes(64)...(.gibibytes(1)))
    }

    func run() throws {
        try reportingFailure {
            let seed = seed ?? UInt64.random(in: 0...UInt64.max)
            if let limit { return try runLimited(limit, seed) }
            Output.line("# seed \(seed)")
            // Together 1.19 times the limit: some fifth of the limit has to be reclaimed each time.
            let victim = TorturedBoth(total: squeeze.map { $0 * 0.7 } ?? .mebibytes(16))
            let tally = try Torture(victim, seed: seed, squeeze: squeeze).run(
                readers: threads, reads: reads, for: .seconds(seconds))
            Bench.figure("torture.reads", Double(tally.reads), "count")
            Bench.figure("torture.wrong-bytes", Double(tally.wrongBytes), "count")
            Bench.figure("torture.dropped", Double(tally.dropped), "count")
            if tally.wrongBytes > 0 {
                throw Failure.failed("\(tally.wrongBytes) bytes were wrong; run it again with --seed \(seed)")
            }
            if tally.dropped == 0 { throw Failure.failed("the kernel reclaimed no page; the test is inconclusive") }
        }
    }

    /// Runs the same torture in a process under a limit.
    private func runLimited(_ limit: ByteCount, _ seed: UInt64) throws {
        let arguments = [
            "--reads", "\(reads)", "--seconds", "\(seconds)", "--threads", "\(threads)", "--seed", "\(seed)",
        ]
        try Bench(limit: limit).run(
            ["torture", "--squeeze", "\((limit * 0.7).bytes)"] + arguments, within: .seconds(seconds + 60))
    }
}
