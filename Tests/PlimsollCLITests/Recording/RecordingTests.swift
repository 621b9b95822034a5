import Foundation
import Plimsoll
import PlimsollTesting
import Testing

@testable import PlimsollCLI
@testable import PlimsollDemos

@Suite struct RecordingTests {
    private let header = Recording.Header(
        plimsollRecording: 1, kernel: "6.1", processors: 2, support: "ownGroup", liveSignals: ["usage", "stall"])

    private let readings = [
        PressureReading(at: .milliseconds(100), boundary: .maximum, limit: .mebibytes(512), usage: .mebibytes(100)),
        PressureReading(
            at: .milliseconds(200), boundary: .high, limit: .mebibytes(512), usage: .mebibytes(500), workingSet: .mebibytes(480),
            available: .mebibytes(40), resident: .mebibytes(450), stall: .init(some: .microseconds(1234), full: .microseconds(34)),
            events: .init(high: 1, max: 2, oom: 3, oomKill: 4), announced: .warning),
        PressureReading(at: .seconds(3), boundary: .none, usage: .zero),
    ]

    private var lines: [String] { [JSONLine.encode(header)] + readings.map { JSONLine.encode(ReadingRecord($0)) } }
    private func file(_ lines: [String]) -> String { lines.map { $0 + "\n" }.joined() }

    @Test func `a written recording is read back equal`() throws {
        let recording = try Recording(parsing: file(lines))
        #expect(recording.header == header)
        #expect(recording.readings == readings)
        #expect(recording.problem == nil)
    }

    /// Returns the readings of a service under `make bench-end-to-end`.
    private func recordedService(_ name: String) throws -> Recording {
        let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        return try Recording(
            parsing: String(contentsOf: root.appending(path: "docs/benchmarks/\(name).jsonl"), encoding: .utf8))
    }

    @Test func `a recorded burst that leaves a third of the limit raises no level`() throws {
        // The first policy warned and released at 22.6 s.
        let recording = try recordedService("burst-1")
        #expect(recording.problem == nil && recording.readings.count == 249)
        #expect(recording.readings.map(\.usage).max().map { $0 > .mebibytes(170) } == true)
        let outcome = Simulation().run(recording.readings)
        #expect(outcome.steps.allSatisfy { $0.assessment.level == .normal && $0.actions.isEmpty })
    }

    @Test func `after recorded bursts that end with room left, the level falls within a second`() throws {
        // The first policy was critical at 12.6 s, and above normal for eleven seconds.
        let recording = try recordedService("burst-2")
        #expect(recording.problem == nil && recording.readings.count == 276)
        let steps = Simulation().run(recording.readings).steps
        #expect(steps.allSatisfy { $0.assessment.level < .critical })
        let raised = zip(steps, steps.dropFirst()).reduce(Duration.zero) { sum, pair in
            pair.0.assessment.level == .normal ? sum : sum + (pair.1.assessment.at - pair.0.assessment.at)
        }
        #expect(raised > .zero && raised <= .seconds(1))
    }

    @Test func `a file without readings is a recording`() throws {
        let recording = try Recording(parsing: file([lines[0]]))
        #expect(recording.readings.isEmpty && recording.problem == nil)
    }

    @Test func `a file cut anywhere is replayed up to the cut, and the cut is named`() throws {
        let whole = file(lines)
        let headerLength = lines[0].utf8.count + 1
        for length in 0..<whole.utf8.count {
            let cut = String(decoding: whole.utf8.prefix(length), as: UTF8.self)
            guard length >= headerLength else {
                #expect(throws: Recording.Problem.self) { try Recording(parsing: cut) }
                continue
            }
            let recording = try Recording(parsing: cut)
            let complete = cut.utf8.count { $0 == UInt8(ascii: "\n") }
            #expect(recording.readings == Array(readings.prefix(complete - 1)))
            let isWhole = cut.hasSuffix("\n")
            #expect(recording.problem?.line == (isWhole ? nil : complete + 1), "cut at \(length)")
            #expect(recording.problem?.reason == (isWhole ? nil : "truncated: the file does not end with a newline"))
        }
    }

    @Test(arguments: [
        ("", "the line is empty"),
        ("{", "not a JSON object"),
        ("[]", "the value is not of the right type"),
        ("{\"atMicroseconds\":1}", "boundary is missing"),
        ("{\"atMicroseconds\":\"now\"}", "atMicroseconds is not of the right type"),
        (
            "{\"atMicroseconds\":300000,\"boundary\":\"sky\",\"residentBytes\":0,\"usageBytes\":1,\"workingSetBytes\":1}",
            "boundary has a value that is not allowed"
        ),
        (
            "{\"atMicroseconds\":300000,\"boundary\":\"none\",\"residentBytes\":0,\"usageBytes\":-1,\"workingSetBytes\":1}",
            "usageBytes is -1; allowed is 0 or more"
        ),
        (
            "{\"atMicroseconds\":1,\"boundary\":\"none\",\"residentBytes\":0,\"usageBytes\":1,\"workingSetBytes\":1}",
            "the time is earlier than in the line before"
        ),
        (
            "{\"announced\":\"doom\",\"atMicroseconds\":300000,\"boundary\":\"none\",\"residentBytes\":0,\"usageBytes\":1,\"workingSetBytes\":1}",
            "announced is \"doom\"; allowed are normal, warning, critical"
        ),
    ])
    func `a malformed line is named, and the readings before that line are kept`(line: String, reason: String) throws {
        let recording = try Recording(parsing: file([lines[0], lines[1], line, lines[2]]))
        #expect(recording.readings == [readings[0]])
        #expect(recording.problem == .init(line: 3, reason: reason))
    }

    @Test(arguments: [
        ("hello\n", "not the header of a recording: not a JSON object"),
        ("\n", "not the header of a recording: not a JSON object"),
        (
            "{\"plimsollRecording\":9,\"kernel\":\"\",\"processors\":1,\"support\":\"\",\"liveSignals\":[]}\n",
            "version 9 of the format; this program reads up to 2"
        ),
        ("", "the file is empty"),
    ])
    func `a file of another kind is refused`(text: String, reason: String) {
        #expect(throws: Recording.Problem(line: 1, reason: reason)) { try Recording(parsing: text) }
    }

    @Test func `the header contains no names of the host`() {
        let header = Recording.Header.here(Capabilities(support: .machine, signals: []))
        #expect(header.kernel.allSatisfy { $0.isNumber || $0 == "." })
        #expect(header.processors >= 1)
    }
}
