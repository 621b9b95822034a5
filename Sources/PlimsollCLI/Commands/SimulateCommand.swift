import ArgumentParser
import PlimsollTesting

/// Runs a drawn history through the standard policy.
struct SimulateCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "simulate", abstract: "Run a drawn pressure history through the standard policy.",
        discussion: """
            A character a second: _ normal, - warning, # critical. Actions are drawn as . none, w warn, r release, q quiesce, \
            e expire background tasks, s suspend, t terminate. Put -- before a drawing that begins with a dash.
            """)

    @Argument(help: "The history, for example __--##__--__.") var trace: String

    func validate() throws {
        guard PressureTrace(trace[...]) != nil else {
            throw ValidationError("\"\(printable(trace))\" is not a drawn trace; allowed are _ (normal), - (warning), # (critical) and blanks.")
        }
        try Allowed.count(trace.count, "The length of the trace", in: 1...100_000)
    }

    func run() {
        guard let trace = PressureTrace(trace[...]) else { return }
        let outcome = Simulation().run(trace)
        Output.line("readings  \(trace.description)\nlevels    \(outcome.levels)\nactions   \(outcome.actions)\n")
        Output.line(History(outcome).table)
    }
}
