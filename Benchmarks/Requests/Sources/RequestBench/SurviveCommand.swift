import ArgumentParser
import Foundation
import Synchronization

/// One hostile request of 1 GiB among two hundred clients, in a group of 256 MiB.
struct SurviveCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "survive", abstract: "Send one request that takes 1 GiB among those of 200 clients, in 256 MiB.")

    @Option(help: "The command plimsoll.") var plimsoll: String
    @Option(help: "Number of runs with budgets; half with limits, half by the rung.") var runs = 20
    @Option(help: "Number of clients.") var clients = 200
    @Option(help: "Requests of each client.") var requests = 30
    @Option(help: "File for a drawing of one run without budgets and one with each kind.") var drawing: String?

    func run() throws {
        var curves: [(name: String, curve: [(seconds: Double, mebibytes: Int)])] = []
        let bare = try one(.none, isHostile: true)
        print("# without budgets: \(bare.text)")
        curves.append(("without budgets", bare.curve))
        let calm = try one(.limit, isHostile: false)
        print("# without a hostile request: \(calm.text)")
        var survived = 0, failed = 0, ratios: [Double] = []
        for number in 0..<runs {
            let budgets = number % 2 == 0 ? Budgets.limit : .largest
            let run = try one(budgets, isHostile: true)
            print("# \(budgets.rawValue): \(run.text)")
            if !run.isKilled, run.hostile == (budgets == .limit ? 413 : 503) { survived += 1 }
            failed += run.failed
            ratios.append(run.worst / calm.worst)
            if curves.count < 3, !curves.contains(where: { $0.name == budgets.rawValue }) {
                curves.append((budgets.rawValue, run.curve))
            }
        }
        figure("budget.survived", survived, of: runs)
        print("figure budget.others-failed \(failed) requests")
        figure("budget.worst", median(ratios), "ratio")
        print("figure budget.without \(bare.isKilled ? "killed" : "survived") outcome")
        if let drawing { try RunDrawing(curves: curves).text.write(toFile: drawing, atomically: true, encoding: .utf8) }
    }

    struct Run {
        var isKilled: Bool
        /// Status of the hostile request; 0 if there was no answer.
        var hostile: Int
        /// Number of other requests that were not answered 200.
        var failed: Int
        /// Seconds of the slowest other request.
        var worst: Double
        var curve: [(seconds: Double, mebibytes: Int)]

        var text: String {
            "\(isKilled ? "killed" : "survived"), hostile answered \(hostile), \(failed) others failed, slowest \(Int(worst * 1000)) ms,"
                + " at most \(curve.map(\.mebibytes).max() ?? 0) MiB resident"
        }
    }

    private func one(_ budgets: Budgets, isHostile: Bool) throws -> Run {
        let server = try Server(budgets, plimsoll: plimsoll, limit: "256M")
        let port = server.port
        let counts = Mutex<(failed: Int, worst: Double, done: Int, hostile: Int)>((0, 0, 0, 0))
        let began = ContinuousClock.now
        let group = DispatchGroup()
        for _ in 0..<clients {
            group.enter()
            Thread.detachNewThread {
                defer { group.leave() }
                let client = Client(port: port)
                for _ in 0..<requests {
                    let start = ContinuousClock.now
                    let status = client?.get("/work") ?? 0
                    let took = (ContinuousClock.now - start) / .seconds(1)
                    counts.withLock {
                        $0.failed += status == 200 ? 0 : 1
                        $0.worst = max($0.worst, took)
                        $0.done += 1
                    }
                }
            }
        }
        if isHostile {
            group.enter()
            Thread.detachNewThread {
                defer { group.leave() }
                // Amid the others.
                while counts.withLock({ $0.done }) < clients { usleep(1000) }
                let status = Client(port: port)?.get("/take/1024") ?? 0
                counts.withLock { $0.hostile = status }
            }
        }
        var curve: [(seconds: Double, mebibytes: Int)] = []
        while group.wait(timeout: .now() + .milliseconds(5)) == .timedOut {
            curve.append(((ContinuousClock.now - began) / .seconds(1), server.resident))
        }
        let result = counts.withLock { $0 }
        return Run(
            isKilled: server.end(), hostile: result.hostile, failed: result.failed, worst: result.worst, curve: curve)
    }
}
