import ArgumentParser
import Plimsoll
import PlimsollDemos
import PlimsollService
import PlimsollTesting

/// Runs a drawn history or a named incident through the standard policy, or has a running service rehearse a level. A
/// drawing contains no letters and every name does, so the argument is unambiguous.
struct SimulateCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "simulate",
        abstract:
            "Run a drawn pressure history or a named incident through the standard policy, or simulate a level in a service.",
        discussion: """
            plimsoll simulate __--##__                  prints the decisions for a drawn history
            plimsoll simulate dentries                  runs an incident that other controllers failed at, and checks the outcome
            plimsoll simulate incidents                 runs all of them: \(Incident.allCases.map(\.rawValue).joined(separator: ", "))
            plimsoll simulate critical --for 5s         simulates a level in a running service: all actions are real, but no process ends

            One character per second: _ normal, - warning, # critical. Actions are drawn as . none, w warn, r release, q quiesce, \
            e expire background tasks, s suspend, t terminate. Put -- before a drawing that begins with a dash.
            """)

    @Argument(
        help:
            "The history, for example __--##__--__; an incident; or a level: warning, critical, or normal to end a simulation."
    ) var trace: String
    @Option(name: .customLong("for"), help: "Duration of a simulated level, for example 500ms, 5s or 2m.") var span:
        Span?
    @OptionGroup var admin: AdminOptions

    private var incidents: [Incident] {
        trace == "incidents" ? Incident.allCases : Incident(rawValue: trace).map { [$0] } ?? []
    }
    private var level: PressureLevel? { PressureLevel(name: trace) }

    func validate() throws {
        if let level {
            guard (level == .normal) == (span == nil) else {
                throw ValidationError(
                    level == .normal
                        ? "normal ends a simulation at once; leave --for out."
                        : "\(level) needs --for, for example --for 5s.")
            }
            if let span { try Allowed.seconds(span.seconds, "--for", in: 0.001...3600) }
            return
        }
        guard span == nil, admin.socket == nil, !admin.json else {
            throw ValidationError(
                "--for, --socket and --json go with a level (normal, warning, critical), not with a drawing or an incident, which need no service."
            )
        }
        guard incidents.isEmpty else { return }
        guard PressureTrace(trace[...]) != nil else {
            throw ValidationError(
                "\"\(printable(trace))\" is not a trace; allowed are _ (normal), - (warning), # (critical) and blanks, a level, or an incident "
                    + "(\(Incident.allCases.map(\.rawValue).joined(separator: ", ")))."
            )
        }
        try Allowed.count(trace.count, "The length of the trace", in: 1...100_000)
    }

    func run() throws {
        if let level { return try rehearse(level) }
        if !incidents.isEmpty { return try reportingFailure { try play(incidents) } }
        guard let trace = PressureTrace(trace[...]) else { return }
        let outcome = Simulation().run(trace)
        Output.line("readings  \(trace.description)\nlevels    \(outcome.levels)\nactions   \(outcome.actions)\n")
        Output.line(History(outcome).table)
    }

    private func play(_ incidents: [Incident]) throws {
        var wrong: [String] = []
        for incident in incidents {
            let run = incident.run(), history = History(Simulation.Outcome(steps: run.steps)), drawing = history.drawing
            let judgement = incident.judge(run.outcome)
            Output.line(
                "\(incident.rawValue): \(incident.summary)\nlevels   \(drawing.levels)\nactions  \(drawing.actions)")
            if incidents.count == 1, !history.changes.isEmpty { Output.line("\n" + history.table) }
            Output.line("expected: \(judgement.expected): \(judgement.isMet ? "met" : "not met")\n")
            if !judgement.isMet { wrong.append(incident.rawValue) }
        }
        guard wrong.isEmpty else { throw Failure.failed("the outcome is wrong: \(wrong.joined(separator: ", "))") }
    }

    private func rehearse(_ level: PressureLevel) throws {
        var request = AdminRequest(.simulate)
        (request.level, request.seconds) = ("\(level)", span?.seconds)
        try admin.ask(request) { answer in
            answer.seconds.map {
                "the service simulates \(level) for \(Text.number($0)) s; `plimsoll explain` shows its actions"
            } ?? "the simulation is over"
        }
    }
}
