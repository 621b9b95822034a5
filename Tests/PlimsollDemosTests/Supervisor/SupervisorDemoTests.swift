import Foundation
import Plimsoll
import PlimsollLinux
import PlimsollSupervisor
import TestSupport
import Testing

@testable import PlimsollDemos

@Suite struct SupervisorDemoTests {
    // MARK: Judging

    @Test func `the last line names the killed members, the survivors and the losses`() {
        #expect(
            TrioRecord.result(without: TrioRecords.without, with: TrioRecords.with)
                == "result: without=killed by the kernel: important after 3.3 s and hog after 7 s, 967 orders lost, "
                + "with=important and bystander survived, ended by the supervisor: hog after 3 s, no orders lost")
    }

    /// Changes to the good plays. `isProof` tells whether the changed plays still prove the demo's claim.
    private static let plays: [(what: String, isProof: Bool, change: @Sendable (inout TrioRecord, inout TrioRecord) -> Void)] = [
        ("both as they should be", true, { _, _ in }),
        ("nothing lost without, but one killed", true, { without, _ in without.lost = [:] }),
        ("without, only the one that grows was killed, and orders were lost", true, { without, _ in without.onlyHogIsKilled() }),
        (
            "without, only the one that grows was killed, and nothing lost", false,
            { without, _ in
                without.onlyHogIsKilled()
                without.lost = [:]
            }
        ),
        ("with, one order was lost", false, { _, with in with.lost["bystander"] = 1 }),
        ("with, the kernel killed", false, { _, with in with.kills = 1 }),
        ("with, the one that matters is gone", false, { _, with in with.isAlive["important"] = false }),
        ("with, nothing is known of the bystander", false, { _, with in with.isAlive["bystander"] = nil }),
    ]

    @Test(arguments: plays.indices)
    func `the demo's claim needs every part of the proof`(index: Int) {
        var without = TrioRecords.without, with = TrioRecords.with
        Self.plays[index].change(&without, &with)
        #expect(TrioRecord.isProof(without: without, with: with) == Self.plays[index].isProof, "\(Self.plays[index].what)")
    }

    @Test func `an end counts as the supervisor's if decided, the kernel's if the kernel counted a kill, and else the service's`() {
        var record = TrioRecord(limit: TrioRecords.limit, start: .seconds(1000))
        #expect(record.takeEnd(of: "important", at: .seconds(1)).cause == .itself)
        record.kills = 1
        TrioRecords.decide(2, "hog", .end(.kill), .critical, to: &record)
        #expect(record.takeEnd(of: "hog", at: .seconds(2)).cause == .supervisor)
        #expect(record.takeEnd(of: "bystander", at: .seconds(3)).cause == .kernel)
        #expect(record.victims == ["bystander"])
        #expect(record.outcome.contains("ended by itself: important after 1 s") && record.outcome.hasSuffix("no orders lost"))
    }

    @Test func `bands follow each other, and change by actions done, not by failed ones`() {
        #expect(TrioRecords.with.bands(of: "hog").map(\.state) == [.running, .warned, .leaving, .suspended, .ended])
        #expect(TrioRecords.with.bands(of: "bystander").map(\.state) == [.running, .warned, .leaving, .suspended, .running])
        #expect(TrioRecords.without.bands(of: "important").map(\.state) == [.running, .ended])
        for member in Trio.members {
            let bands = TrioRecords.with.bands(of: member.name)
            #expect(bands.first?.from == .zero && bands.last?.to == .seconds(10))
            for (band, next) in zip(bands, bands.dropFirst()) { #expect(band.to == next.from && band.from < band.to) }
        }
        var record = TrioRecord(limit: TrioRecords.limit, start: .seconds(1000))
        record.length = .seconds(4)
        TrioRecords.done(1, "hog", .suspend, .critical, failure: "it would not", to: &record)
        #expect(record.bands(of: "hog") == [.init(from: .zero, to: .seconds(4), state: .running)])
    }

    // MARK: Telling

    @Test func `the timeline reports each level once, decisions with the reason, and the results`() throws {
        var timeline = TrioTimeline(isSupervised: true)
        let lines = TrioRecords.with.audits.flatMap { timeline.lines(.audit($0), at: $0.at) }
        #expect(lines.count { $0.contains("  memory is at level") } == 3)
        #expect(lines.first == "  1.45 s  warning   memory is at level warning, 20 MiB short")
        #expect(lines.contains("  2.40 s  critical  hog: sent to the background; it is the least important"))
        #expect(lines.contains("  2.95 s  critical    hog ended after 50 ms; 61 MiB freed"))
        #expect(timeline.lines(.line(.warning, .mebibytes(210)), at: .seconds(3)).isEmpty)
        #expect(
            timeline.lines(.ended("hog", .init(at: .seconds(3), cause: .kernel)), at: .seconds(3)).first?.contains("KILLED by the kernel") == true)
    }

    @Test func `without a supervisor, the timeline reports the lines that memory passes`() {
        var timeline = TrioTimeline(isSupervised: false)
        let limit = ByteCount.mebibytes(100)
        #expect(
            [10, 79, 81, 89, 91].map { TrioRecord.line(passedBy: .mebibytes($0), limit: limit) } == [.normal, .normal, .warning, .warning, .critical])
        #expect(
            timeline.lines(.line(.critical, .mebibytes(91)), at: .seconds(1))
                == ["  1.00 s  critical  memory is beyond the critical line with 91 MiB, and no supervisor acts"])
        #expect(
            timeline.lines(.line(.normal, .mebibytes(50)), at: .seconds(2)) == ["  2.00 s  normal    memory is below the warning line with 50 MiB"])
    }

    // MARK: Drawing

    @Test(arguments: [false, true])
    func `the chart has both plays, whole and readable`(isEmpty: Bool) {
        let blank = TrioRecord(limit: TrioRecords.limit, start: .zero)
        let svg = SupervisorChart(without: isEmpty ? blank : TrioRecords.without, with: isEmpty ? blank : TrioRecords.with).svg
        let texts = ChartTexts(svg)
        texts.expectReadable()
        let words = texts.boxes.map(\.text)
        for name in ["limit", "critical", "warning", "important", "bystander", "hog"] { #expect(words.count { $0 == name } == 2, "\(name)") }
        #expect(words.contains("Without a supervisor") && words.contains("With a supervisor"))
        #expect(svg.contains("prefers-color-scheme: dark"))
        guard !isEmpty else { return }
        for mark in [
            "the kernel kills important", "the kernel kills hog", "hog notified: warning", "hog, bystander to the background",
            "bystander, hog suspended",
            "hog ended, 61 MiB freed", "bystander resumed",
        ] { #expect(words.contains(mark), "\(mark)") }
        for state in TrioState.allCases { #expect(svg.contains("class=\"\(state.rawValue)\"")) }
    }

    @Test func `the outcome fits into the chart, also if the kernel kills all three`() {
        var record = TrioRecord(limit: TrioRecords.limit, start: .zero)
        for (index, member) in Trio.members.enumerated() {
            record.kills = index + 1
            _ = record.takeEnd(of: member.name, at: .milliseconds(10_600 + index * 1100))
        }
        record.lost = ["important": 12_345]
        ChartTexts(SupervisorChart(without: record, with: record).svg).expectReadable()
    }

    @Test func `the sockets are in the first directory that systemd has made for the supervisor`() {
        #expect(SuperviseCommand.standardDirectory(["RUNTIME_DIRECTORY": "/run/a:/run/b", "XDG_RUNTIME_DIR": "/c"]) == "/run/a")
        #expect(SuperviseCommand.standardDirectory(["RUNTIME_DIRECTORY": "", "XDG_RUNTIME_DIR": "/c"]) == "/c/plimsoll")
        #expect(SuperviseCommand.standardDirectory(["XDG_RUNTIME_DIR": ""]) == "/run/plimsoll")
    }

    @Test func `names from a journal are escaped in the chart`() {
        var record = TrioRecords.with
        TrioRecords.done(5, "<script>\"&'", .suspend, .critical, to: &record)
        let svg = SupervisorChart(without: TrioRecords.without, with: record).svg
        #expect(!svg.contains("<script>"))
        ChartTexts(svg).expectReadable()
    }

    // MARK: On a real kernel

    @Test(.needs(ProcessTests.obstacle == nil, "no group can be made here"))
    func `a real play reports and draws both runs, and leaves nothing behind`() throws {
        let svg = NSTemporaryDirectory() + "plimsoll-test-\(UUID().uuidString).svg"
        defer { try? FileManager.default.removeItem(atPath: svg) }
        let child = try ChildProcess(ProcessTests.program, ["plimsoll", "demo", "supervisor", "--length", "8", "--svg", svg], readsOutput: true)
        let ending = child.waitForEnd(), lines = child.output?.lines() ?? [], output = lines.joined(separator: "\n")
        expectNothingLeft(by: child.pid)
        // The winner of a race for memory beside all other tests is not checked here, but in the virtual machine and in
        // the benchmark.
        try #require(ending == .exited(0) || ending == .exited(1), "\(output)")
        // An interrupted play gives no drawing.
        try #require(lines.last?.hasPrefix("result: without=") == true, "\(output)")
        ChartTexts(ControlFile.text(svg) ?? "").expectReadable()
    }

    @Test(.needs(ProcessTests.obstacle == nil, "no group can be made here"))
    func `an interrupted play leaves nothing behind`() throws {
        let child = try ChildProcess(ProcessTests.program, ["plimsoll", "demo", "supervisor"], readsOutput: true)
        defer { child.end(within: .zero) }
        // The services run by the time of the first line about memory.
        var lines: [String] = []
        while !lines.contains(where: { $0.contains("memory is") }), child.poll() == nil {
            var file = pollfd(fd: child.output?.descriptor ?? -1, events: Int16(POLLIN), revents: 0)
            poll(&file, 1, 100)
            lines += child.output?.lines() ?? []
        }
        try #require(child.ending == nil, "it ended by itself: \(lines.joined(separator: "\n"))")
        child.signal(SIGINT)
        #expect(child.waitForEnd() == .exited(1))
        expectNothingLeft(by: child.pid)
    }

    private func expectNothingLeft(by process: pid_t) {
        for directory in [ControlGroup(HostKernel()).memory.path, ControlGroup(HostKernel()).unified.path] {
            if let directory { #expect(access("\(directory)/plimsoll-\(process)-trio", F_OK) != 0) }
        }
        #expect(access("\(FileManager.default.temporaryDirectory.path)/plimsoll-\(process)-trio", F_OK) != 0)
    }
}

extension TrioRecord {
    /// Changes this record so that the other services stay to the end.
    fileprivate mutating func onlyHogIsKilled() {
        var record = TrioRecord(limit: limit, start: start)
        (record.isSupervised, record.length, record.samples, record.kills) = (isSupervised, length, samples, 1)
        record.takeEnd(of: "hog", at: .seconds(7))
        record.isAlive = ["important": true, "bystander": true, "hog": false]
        record.lost = lost
        self = record
    }
}
