import ArgumentParser
import Foundation

/// Requests a second with budgets, and with a middleware that does nothing, to those without.
struct ThroughputCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "throughput",
        abstract: "Load the quick start's request with wrk: with budgets, with an empty middleware, and without.")

    @Option(help: "The command plimsoll.") var plimsoll: String
    @Option(help: "The program wrk.") var wrk = "/usr/bin/wrk"
    @Option(help: "Turns of three runs.") var turns = 21
    @Option(help: "Seconds of each run.") var seconds = 2

    func run() throws {
        guard FileManager.default.isExecutableFile(atPath: wrk) else {
            throw Failure("cannot load the service because \(wrk) is not installed; do: apt-get install wrk")
        }
        // All run all the time; the load alternates.
        let servers = try [Budgets.none, .empty, .limit].map { try Server($0, plimsoll: plimsoll, limit: nil) }
        defer { for server in servers { _ = server.end() } }
        var rates: [[Double]] = []
        for turn in 0...turns {
            // Each server is loaded as often in each place.
            var rate = [Double](repeating: 0, count: servers.count)
            for place in servers.indices {
                let index = (place + turn) % servers.count
                rate[index] = try load(servers[index], seconds)
            }
            // The first turn warms up.
            guard turn > 0 else { continue }
            rates.append(rate)
            print(String(format: "# %.0f without, %.0f with an empty middleware, %.0f with", rate[0], rate[1], rate[2]))
        }
        figure("budget.throughput", median(rates.map { $0[2] / $0[0] }), "ratio")
        figure("budget.throughput-empty", median(rates.map { $0[1] / $0[0] }), "ratio")
        figure("budget.throughput-without", median(rates.map { $0[0] }), "requests_a_second")
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
