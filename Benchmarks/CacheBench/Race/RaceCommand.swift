import ArgumentParser
import Foundation

/// Runs one race, in a process that has done nothing else.
///
/// An earlier race leaves a fragmented heap, on which ten thousand new objects lie on as many pages. The measurement
/// would then show those pages, and not the caches.
struct RaceCommand: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "_race", shouldDisplay: false)

    @Option var workload: String
    @OptionGroup var terms: RaceTerms
    @Option var into: String

    func run() throws {
        try reportingFailure {
            let race = try Workloads(externals: terms.externals).race(workload)
            let raceResults = try race.run(rounds: terms.rounds, length: .milliseconds(terms.milliseconds))
            try File.write(String(decoding: JSONEncoder().encode(raceResults), as: UTF8.self), to: into)
        }
    }

    /// Runs a race on `terms` in a new process of this program, and returns the outcome.
    static func run(_ workload: String, on terms: RaceTerms) throws -> RaceResult {
        let file = FileManager.default.temporaryDirectory.appending(
            path: "cache-bench-\(ProcessInfo.processInfo.processIdentifier)-\(workload).json")
        defer { try? FileManager.default.removeItem(at: file) }
        let arguments = ["cache-bench", "_race", "--workload", workload, "--into", file.path] + terms.arguments
        let ending = try ChildProcess(ChildProcess.itself, arguments).waitForEnd()
        guard ending == .exited(0) else {
            throw Failure.failed("the race \(workload) ended with status \(ending.status)")
        }
        return try JSONDecoder().decode(RaceResult.self, from: Data(contentsOf: file))
    }
}

/// The settings of races, and the external peers.
struct RaceTerms: ParsableArguments {
    @Option(help: "Rounds that count.") var rounds = 7
    @Option(help: "Length of each heat.") var milliseconds = 100
    @Option(help: "Class path with CaffeinePeer and Caffeine.", completion: .file()) var caffeine: String?
    @Option(help: "The program tbb_peer.", completion: .file()) var tbb: String?

    var arguments: [String] {
        let peers = [("--caffeine", caffeine), ("--tbb", tbb)].flatMap { name, path in path.map { [name, $0] } ?? [] }
        return ["--rounds", "\(rounds)", "--milliseconds", "\(milliseconds)"] + peers
    }

    var externals: [ExternalPeer] {
        var peers: [ExternalPeer] = []
        if let caffeine {
            // Ample memory, and the collector that costs the threads least.
            let command = ["java", "-Xms1g", "-Xmx2g", "-XX:+UseParallelGC", "-cp", caffeine, "CaffeinePeer"]
            peers.append(
                ExternalPeer(
                    name: "Caffeine", command: command, works: [.look, .lookOrInsert, .lookAndWrite],
                    kinds: [.number, .text]))
        }
        if let tbb {
            peers.append(
                ExternalPeer(name: "TBB LRU", command: [tbb], works: [.look, .lookOrInsert], kinds: [.number]))
        }
        return peers
    }
}
