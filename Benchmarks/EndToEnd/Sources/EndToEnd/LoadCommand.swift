import ArgumentParser
import Comparing
import Foundation

/// Sends one load to a running server, and prints the outcome.
struct LoadCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "load",
        abstract: "Send requests when they are due, without waiting for earlier answers; print a line of JSON.")

    @Option(help: "Port the server listens on, on loopback.") var port: UInt16
    @Option(help: "What makes the same requests again.") var seed: UInt64 = 1
    @Option(help: "Length of the load.") var seconds = 30.0
    @Option(help: "Seconds before that, with look-ups alone at half the rate, which count nowhere.") var warmUp = 5.0
    @Option(help: "The server's memory limit in bytes, of which uploads are shares.") var limit: Int
    @Option(help: "calm, burst-1, burst-2, burst-3 or leak.") var load = "burst-1"
    @Option(help: "Look-ups a second.") var rate = 1400.0
    @Option(help: "The most requests in flight.") var connections = 256

    func validate() throws {
        guard LoadKind.named(load) != nil else {
            throw ValidationError("--load is \(load); allowed is \(LoadKind.all.map(\.name).joined(separator: ", ")).")
        }
        guard (1...3600).contains(seconds) else {
            throw ValidationError("--seconds is \(seconds); allowed is 1 to 3600.")
        }
        guard (0...600).contains(warmUp) else { throw ValidationError("--warm-up is \(warmUp); allowed is 0 to 600.") }
        guard (1...100_000).contains(rate) else { throw ValidationError("--rate is \(rate); allowed is 1 to 100000.") }
        guard (1...4096).contains(connections) else {
            throw ValidationError("--connections is \(connections); allowed is 1 to 4096.")
        }
    }

    func run() throws {
        let trace = Trace(LoadKind.named(load)!, limit: limit, rate: rate, seconds: seconds, warmUp: warmUp, seed: seed)
        let result = LoadGenerator(trace, port: port, connections: connections).run()
        print(String(decoding: try JSONEncoder().encode(result), as: UTF8.self))
    }
}
