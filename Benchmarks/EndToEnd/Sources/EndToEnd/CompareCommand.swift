import ArgumentParser
import Comparing
import Foundation
import Glibc
import Plimsoll

/// Runs variants under loads and limits, one after another, and keeps each run as a line of JSON.
struct CompareCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "compare",
        abstract: "Run variants in turn, each in a group with a limit, and append every run to a file.",
        discussion: "Runs that the file has already are not made again. Exit status 69 if no group can be made.")

    @Option(help: "Memory limits, comma separated.") var limits = "128M,256M,512M"
    @Option(help: "Loads, comma separated: \(LoadKind.all.map(\.name).joined(separator: ", ")).") var loads =
        "calm,burst-1,burst-2,leak"
    @Option(help: "Variants, comma separated: \(Variant.names).")
    var variants =
        "none,nscache-25,nscache-40,fixed-10,fixed-15,fixed-25,fixed-40,fixed-60,jemalloc-25,jemalloc-40,plimsoll,plimsoll-heap,plimsoll-unshed"
    @Option(help: "Runs of each.") var runs = 5
    @Option(help: "Length of a run.") var seconds = 30.0
    @Option(help: "Seconds before that, with look-ups alone at half the rate, which count nowhere.") var warmUp = 5.0
    @Option(help: "Look-ups a second.") var rate = 1400.0
    @Option(help: "Seed of the first run; each further run has the next.") var seed: UInt64 = 1
    @Option(help: "File to append runs to.") var json = "out/end-to-end.jsonl"
    @Option(
        help:
            "Make a run again if others used more processors than this beside it, for example 0.3; the file keeps both."
    )
    var neighbours: Double?
    @Option(help: "The plimsoll command.") var plimsoll = ".build/release/plimsoll"

    func validate() throws {
        for limit in Self.list(limits) {
            guard let bytes = ByteCount(limit), bytes >= .mebibytes(64) else {
                throw ValidationError("--limits has \(limit); allowed is 64M and more, for example 256M.")
            }
        }
        for load in Self.list(loads) where LoadKind.named(load) == nil {
            throw ValidationError(
                "--loads has \(load); allowed is \(LoadKind.all.map(\.name).joined(separator: ", ")).")
        }
        for variant in Self.list(variants) where Variant(variant) == nil {
            throw ValidationError("--variants has \(variant); allowed is \(Variant.names).")
        }
        guard (1...1000).contains(runs) else { throw ValidationError("--runs is \(runs); allowed is 1 to 1000.") }
        guard (5...3600).contains(seconds) else {
            throw ValidationError("--seconds is \(seconds); allowed is 5 to 3600.")
        }
        guard (0...600).contains(warmUp) else { throw ValidationError("--warm-up is \(warmUp); allowed is 0 to 600.") }
        guard (1...100_000).contains(rate) else { throw ValidationError("--rate is \(rate); allowed is 1 to 100000.") }
    }

    func run() throws {
        let runner = Runner(program: "/proc/self/exe".resolved, plimsoll: plimsoll, jemalloc: Self.jemalloc),
            file = RecordFile(json)
        do { try runner.check() } catch {
            FileHandle.standardError.write(Data("\(error)\n".utf8))
            throw ExitCode(69)
        }
        Interruption.listen()
        let plans = Comparison(
            limits: Self.list(limits).map { ByteCount($0)!.bytes }, loads: Self.list(loads),
            variants: Self.list(variants), runs: runs,
            seconds: seconds,
            warmUp: warmUp, rate: rate, seed: seed
        ).plans(after: try file.records(mostNeighbours: neighbours))
        var failures = 0
        for (index, plan) in plans.enumerated() {
            let record = try runner.run(plan)
            print("\(index + 1)/\(plans.count) " + record.line)
            fflush(nil)
            // Not kept, so that the same comparison repeats the run.
            if record.result == nil {
                failures += 1
                if failures == Self.mostFailures { break }
            } else {
                try file.append(record)
            }
        }
        if failures > 0 { throw ExitCode.failure }
    }

    /// Failed runs after which the remaining runs are not tried.
    private static let mostFailures = 3

    private static func list(_ text: String) -> [String] { text.split(separator: ",").map { String($0) } }

    /// The path of jemalloc in common distributions.
    private static var jemalloc: String? {
        ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"].map {
            $0 + "/libjemalloc.so.2"
        }
        .first { FileManager.default.fileExists(atPath: $0) }
    }
}

extension String {
    /// Target of the symbolic link at this path.
    fileprivate var resolved: String { (try? FileManager.default.destinationOfSymbolicLink(atPath: self)) ?? self }
}
