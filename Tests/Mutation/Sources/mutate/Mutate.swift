import ArgumentParser
import Foundation
import Schemata
import Synchronization

/// Changes decisions one at a time and reports the changes that no test notices.
@main struct Mutate: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "mutate",
        abstract: "Build the library once with all mutants, and run the tests with a sample of them.",
        discussion: "Prints survivors with their lines, and figures. Exit status 1 if fewer than --least are killed.")

    @Option(help: "Number of mutants; 0: all.") var sample = 400
    @Option(help: "Seed of the sample.") var seed: UInt64 = 1
    @Option(help: "Only mutants of files whose path contains this text.") var only: String?
    @Flag(help: "Only mutants of the lines that Tests/Mutation/aimed.txt names.") var aimed = false
    @Option(help: "Repository.") var root = "."
    @Option(help: "Directory for the copy with mutants.") var into = ".build-mutants"
    @Option(help: "File to append verdicts to. Mutants that the file has are not tried again.") var results = "out/mutants.jsonl"
    @Option(help: "Least share of mutants to be killed, in percent.") var least = 0.0
    @Option(help: "Number of mutants tried at a time. A busy machine makes tests fail that a mutant does not.") var jobs = 1
    @Flag(help: "List the sample and run nothing.") var list = false

    func run() throws {
        let origin = URL(fileURLWithPath: root).standardizedFileURL
        let folder = URL(fileURLWithPath: into).standardizedFileURL
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        var tree = try MutatedTree(of: origin, at: folder)
        try tree.build()
        print("# \(tree.mutants.count) mutants, seed \(seed)")
        fflush(nil)
        let equivalents = try Equivalents(origin.appendingPathComponent("Tests/Mutation/equivalent.txt"))
        let aims = aimed ? try AimedLines(origin.appendingPathComponent("Tests/Mutation/aimed.txt"), tree.mutants) : nil
        let chosen = choose(from: tree.mutants.filter { !equivalents.contains($0) && aims?.contains($0) ?? true })
        if list {
            for mutant in chosen { print(Self.place(of: mutant), mutant.kind.rawValue, mutant.change) }
            return
        }
        let results = Mutex(try Results(results)), sample = chosen.count
        let open = results.withLock { kept in chosen.enumerated().filter { kept.verdict(on: $0.element) == nil } }
        let trials = try Trials(tree, jobs: jobs)
        try Self.each(open, atOnce: jobs) { index, mutant in
            let verdict = try trials.verdict(on: mutant)
            try results.withLock { kept in
                try kept.add(Results.Line(mutant: mutant, verdict: verdict))
                print("\(index + 1)/\(sample)", verdict, Self.place(of: mutant), mutant.change)
                fflush(nil)
            }
        }
        let verdicts = results.withLock { kept in chosen.compactMap { mutant in kept.verdict(on: mutant).map { (mutant, $0) } } }
        for (mutant, verdict) in verdicts where verdict == .survived || verdict == .unreached {
            print(verdict, Self.place(of: mutant), mutant.change)
        }
        try report(verdicts)
    }

    /// Returns file, line, and column within the text of the line.
    private static func place(of mutant: Mutant) -> String { "\(mutant.file):\(mutant.line): \(mutant.column):" }

    /// Calls `body` with each item, on several threads. After an error no more calls begin.
    static func each<Item: Sendable>(
        _ items: [Item], atOnce count: Int, _ body: @Sendable (Item) throws -> Void
    ) throws {
        let state = Mutex<(rest: ArraySlice<Item>, failure: (any Error)?)>((items[...], nil))
        DispatchQueue.concurrentPerform(iterations: max(1, count)) { _ in
            while let item = state.withLock({ $0.failure == nil ? $0.rest.popFirst() : nil }) {
                do { try body(item) } catch { state.withLock { $0.failure = error } }
            }
        }
        if let failure = state.withLock({ $0.failure }) { throw failure }
    }

    /// Returns a random sample: the same for the same seed. A change of the sources leaves the rest of the sample
    /// unchanged, so that earlier verdicts are of use.
    private func choose(from mutants: [Mutant]) -> [Mutant] {
        let candidates = mutants.filter { only.map($0.file.contains) ?? true }
        guard sample > 0, sample < candidates.count else { return candidates }
        let ranked = candidates.map { (rank: rank(of: $0), mutant: $0) }
        return ranked.sorted { $0.rank < $1.rank }.prefix(sample).map(\.mutant).sorted { $0.id < $1.id }
    }

    /// Returns a number that looks random, from the mutant's text and the seed.
    private func rank(of mutant: Mutant) -> UInt64 {
        // FNV-1a, whose last bytes reach few bits; the generator spreads them.
        let text = mutant.key + mutant.kind.rawValue
        let hash = text.utf8.reduce(0xcbf2_9ce4_8422_2325 ^ seed) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
        var generator = SplitMix64(state: hash)
        return generator.next()
    }

    private func report(_ verdicts: [(Mutant, Trials.Verdict)]) throws {
        func count(_ verdict: Trials.Verdict) -> Int { verdicts.count { $0.1 == verdict } }
        let killed = count(.killed) + count(.hung)
        let share = Double(killed) * 100 / Double(max(1, verdicts.count))
        print("figure mutants.killed \((share * 10).rounded() / 10) %")
        print("figure mutants.tried \(verdicts.count) count")
        print("figure mutants.hung \(count(.hung)) count")
        print("figure mutants.survived \(count(.survived)) count")
        print("figure mutants.unreached \(count(.unreached)) count")
        if share < least { throw ExitCode(1) }
    }
}

/// A generator with a seed (Steele, Lea and Flood, OOPSLA 2014).
struct SplitMix64: RandomNumberGenerator {
    var state: UInt64
    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var z = state
        z = (z ^ (z >> 30)) &* 0xbf58_476d_1ce4_e5b9
        z = (z ^ (z >> 27)) &* 0x94d0_49bb_1331_11eb
        return z ^ (z >> 31)
    }
}
