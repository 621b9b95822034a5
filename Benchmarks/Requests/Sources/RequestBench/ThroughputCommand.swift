import ArgumentParser
import Foundation

/// Requests a second with budgets, to those without.
struct ThroughputCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "throughput", abstract: "Load the quick start's request with wrk, with budgets and without.")

    @Option(help: "The command plimsoll.") var plimsoll: String
    @Option(help: "The program wrk.") var wrk = "/usr/bin/wrk"
    @Option(help: "Pairs of runs.") var pairs = 7
    @Option(help: "Seconds of each run.") var seconds = 6

    func run() throws {
        guard FileManager.default.isExecutableFile(atPath: wrk) else {
            throw Failure("cannot load the service because \(wrk) is not installed; do: apt-get install wrk")
        }
        // Both run all the time; the load alternates.
        let without = try Server(.none, plimsoll: plimsoll, limit: nil),
            with = try Server(.limit, plimsoll: plimsoll, limit: nil)
        defer { for server in [without, with] { _ = server.end() } }
        var ratios: [Double] = [], rates: [Double] = []
        for pair in 0...pairs {
            let order = pair % 2 == 0 ? [without, with] : [with, without]
            var rate: [Int: Double] = [:]
            for server in order { rate[server.port] = try load(server, pair == 0 ? 2 : seconds) }
            // The first pair warms up.
            guard pair > 0 else { continue }
            ratios.append(rate[with.port]! / rate[without.port]!)
            rates.append(rate[without.port]!)
            print(String(format: "# %.0f with, %.0f without", rate[with.port]!, rate[without.port]!))
        }
        figure("budget.throughput", median(ratios), "ratio")
        figure("budget.throughput-without", median(rates), "requests_a_second")
    }

    private func load(_ server: Server, _ seconds: Int) throws -> Double {
        let process = Process(), output = Pipe()
        process.executableURL = URL(fileURLWithPath: wrk)
        process.arguments = ["-t1", "-c16", "-d\(seconds)s", "http://127.0.0.1:\(server.port)/thumbnail/one"]
        process.standardOutput = output
        try process.run()
        let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        process.waitUntilExit()
        guard let line = text.split(separator: "\n").first(where: { $0.hasPrefix("Requests/sec:") }),
            let rate = Double(line.dropFirst("Requests/sec:".count).trimmingCharacters(in: .whitespaces))
        else { throw Failure("wrk said \(text)") }
        return rate
    }
}
