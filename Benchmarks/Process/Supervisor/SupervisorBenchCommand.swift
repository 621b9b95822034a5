import ArgumentParser
import Plimsoll
import PlimsollDemos
import PlimsollSupervisor

/// Measures the supervisor's benefit and cost.
struct SupervisorBenchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "supervisor",
        abstract:
            "Run three services under one limit many times, measure 500 idle units and decisions on them, and kill the supervisor."
    )

    enum Part: String, CaseIterable { case trio, decision, idle, killed }

    @Option(help: "Parts to run, separated by commas.") var parts = Part.allCases.map(\.rawValue).joined(separator: ",")
    @Option(help: "Runs of the three services.") var runs = 20
    @Option(help: "Limit of the group of the three services.") var limit = ByteCount.mebibytes(256)
    @Option(
        help:
            "Growth of the hog, in multiples of 12 % of the limit a second; below 1 for emulated processors.")
    var pace = 1.0
    @Option(help: "Units of the idle fleet.") var units = 500
    @Option(help: "Seconds of idling.") var seconds = 20.0

    func validate() throws {
        try Allowed.count(runs, "--runs", in: 1...1000)
        try Allowed.factor(pace, "--pace", in: 0.1...10)
        try Allowed.count(units, "--units", in: 1...1000)
        try Allowed.seconds(seconds, "--seconds", in: 1...600)
        let _: [Part] = try Allowed.list(parts, "--parts")
    }

    func run() throws {
        try reportingFailure {
            let signals = SignalQueue()
            for part in try Allowed.list(parts, "--parts") as [Part] {
                do {
                    switch part {
                    case .trio: try trio(signals)
                    case .decision: DecisionBench(units: units).run()
                    case .idle: try IdleFleet(units: units, seconds: seconds).measure()
                    case .killed: try KilledSupervisor(signals: signals).measure(runs: min(runs, 10))
                    }
                } catch let refusal as GroupMaker.Refusal {
                    throw Failure.unavailable("\(part.rawValue): \(refusal); \(GroupMaker.Refusal.remedy)")
                }
            }
        }
    }

    private func trio(_ signals: SignalQueue) throws {
        var records: [TrioRecord] = []
        for number in 1...runs {
            let record = try play(isSupervised: true, signals)
            records.append(record)
            Output.line(
                "# run \(number): \(record.result); first relief \(record.reliefAfterCritical.map { Text.number($0.milliseconds) } ?? "-") ms after critical"
            )
        }
        let alone = try play(isSupervised: false, signals)
        Output.line("# without a supervisor: \(alone.result)")
        func figure(_ name: String, _ value: Double, _ unit: String) {
            Output.line("figure \(name) \(Text.number(value, decimals: 3)) \(unit)")
        }
        figure("supervisor.trio.survived", Double(records.count(where: \.survived)), "of_\(runs)")
        figure("supervisor.trio.state-lost", Double(records.reduce(0) { $0 + $1.lostOrders }), "orders")
        figure(
            "supervisor.trio.hog-warned-then-stopped", Double(records.count { $0.hogWasWarned && $0.hogWasStopped }),
            "of_\(runs)")
        let reliefs = records.compactMap(\.reliefAfterCritical).map(\.milliseconds).sorted()
        if !reliefs.isEmpty { figure("supervisor.first-relief", reliefs[reliefs.count / 2], "ms") }
    }

    private func play(isSupervised: Bool, _ signals: SignalQueue) throws -> TrioRecord {
        try ScratchDirectory.with("trio") { directory in
            try Trio(limit: limit, directory: directory, maker: GroupMaker(), signals: signals, pace: pace)
                .play(isSupervised: isSupervised, for: .seconds(20))
        }
    }
}

extension TrioRecord {
    fileprivate var hogWasWarned: Bool { wasDone(.warn, to: "hog") }
    fileprivate var hogWasStopped: Bool { wasDone(.suspend, to: "hog") || wasDone(.end, to: "hog") }

    /// Time from the first critical decision to the first memory returned afterwards.
    fileprivate var reliefAfterCritical: Duration? {
        guard let first = audits.first(where: { $0.level == .critical })?.at else { return nil }
        return audits.first { $0.at >= first && $0.result?.relief ?? .zero > .zero }.map { $0.at - first }
    }
}
