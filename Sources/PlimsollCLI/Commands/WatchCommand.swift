import ArgumentParser
import Plimsoll
import PlimsollDemos
import PlimsollLifecycle

/// Shows memory pressure live, and the actions that the standard policy would take.
struct WatchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "watch",
        abstract: "Show memory pressure live, and the actions that the standard policy would take.",
        discussion: "Watches the group that the command runs in, and changes nothing. Ctrl-C quits.")

    @Flag(help: "Print a JSON line for each changed reading, at least one a second.") var json = false
    @Option(name: .customLong("for"), help: "Seconds to watch; until Ctrl-C by default.") var seconds: Double?

    func validate() throws { try Allowed.seconds(seconds, "--for", in: 0.1...604_800) }

    func run() throws {
        try reportingFailure {
            var decisions = PressureDecisions()
            var view = WatchView()
            var lines = ChangeFilter()
            let redraws = Output.isTerminal && !json
            if redraws { Output.raw("\u{1B}[?25l") }
            defer { if redraws { Output.raw("\u{1B}[?25h") } }
            try LiveReadings().forEach(every: .milliseconds(redraws ? 200 : 100), atMost: seconds.map { .seconds($0) })
            { reading in
                let step = decisions.decide(reading)
                view.note(step)
                if redraws {
                    Output.raw(view.frame(step))
                } else if lines.isNews(step) {
                    return Output.write((json ? JSONLine.encode(StepRecord(step)) : view.line(step)) + "\n", to: 1)
                }
                return true
            }
        }
    }
}

/// Selects the steps that deserve a line: steps in which something changed, and one a second.
struct ChangeFilter {
    private var last: PressureDecisions.Step?

    /// Smallest share of the limit that counts as a change. Less is noise of the kernel's per-processor accounting.
    static let leastMove = 0.01

    mutating func isNews(_ step: PressureDecisions.Step) -> Bool {
        defer { if last == nil || changed(step) { last = step } }
        return last == nil || changed(step)
    }

    private func changed(_ step: PressureDecisions.Step) -> Bool {
        guard let last else { return true }
        if step.reading.at - last.reading.at >= .seconds(1) || !step.actions.isEmpty { return true }
        if step.assessment.level != last.assessment.level || step.reading.limit != last.reading.limit { return true }
        let moved = abs(step.reading.usage.bytes - last.reading.usage.bytes)
        return moved > ((step.reading.limit ?? .gibibytes(1)) * Self.leastMove).bytes
    }
}

/// A reading with the resulting assessment and actions, as a JSON line.
struct StepRecord: Encodable {
    var reading: ReadingRecord
    var level: String
    var evidence: String
    var shortfallBytes: Int
    var growthBytesPerSecond: Int
    var timeLeftMicroseconds: Int?
    var stallShare: Double
    var actions: [String]

    init(_ step: PressureDecisions.Step) {
        reading = ReadingRecord(step.reading)
        level = step.assessment.level.description
        evidence = step.assessment.evidence.description
        shortfallBytes = step.assessment.shortfall.bytes
        growthBytesPerSecond = step.assessment.growth.bytes
        timeLeftMicroseconds = step.assessment.timeLeft.map { Int($0.inNanoseconds / 1000) }
        stallShare = step.assessment.stallShare
        actions = step.actions.map(\.description)
    }
}
