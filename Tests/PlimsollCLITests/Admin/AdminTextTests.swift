import PlimsollLifecycle
import PlimsollTesting
import Testing

@testable import Plimsoll
@testable import PlimsollCLI
@testable import PlimsollService

/// The texts of `plimsoll status` and similar commands.
@Suite struct AdminTextTests {
    private let manager = ResourceManager(source: ScriptedPressureSource())

    @Test func `shed requests are shown by priority, and a limit only where one is set`() throws {
        let shedder = RequestShedder("http", policy: SheddingPolicy(limit: 1))
        manager.lifecycle.pausables.add(shedder)
        manager.lifecycle.pausables.add(RequestShedder("open"))
        #expect(shedder.begin(.normal) == nil)
        for priority in [RequestPriority.sheddable, .normal, .sheddable] { #expect(shedder.begin(priority) != nil) }
        let lines = AdminText.status(manager.status).split(separator: "\n")
        #expect(lines.contains("admission  http: 1 of 1 run, 0 wait, 3 refused (2 sheddable, 1 normal)"))
        #expect(lines.contains("admission  open: 0 run, 0 wait, 0 refused"))
    }

    @Test func `a purgeable that does not answer is named`() {
        manager.register("sqlite\u{1B}", byteCount: { 4096 }, release: { _ in 0 })
        var status = manager.status
        status.holders[0].unansweredSeconds = 12.34
        #expect(AdminText.status(status).contains("caches     1 hold 4 KiB; sqlite\u{FFFD} has not answered for 12.3 s"))
        #expect(AdminText.caches(status.holders).contains("sqlite\u{FFFD}, no answer for 12.3 s"))
    }

    @Test func `each word of a status reaches the terminal without control characters`() throws {
        var status = try #require(try TopViewTests.answer().status)
        status.level = "warning\u{1B}]0;x\u{7}"
        status.memory?.boundary = "maximum\u{1B}[2J"
        let text = AdminText.status(status)
        #expect(text.contains("warning\u{FFFD}]0;x\u{FFFD}") && text.contains("(maximum\u{FFFD}[2J)"), "\(text)")
        #expect(!text.unicodeScalars.contains("\u{1B}"))
    }

    @Test func `a held level shows the end and the reason, in each text`() throws {
        var answer = try TopViewTests.answer()
        manager.lifecycle.pausables.add(RequestShedder("http"))
        var status = try #require(answer.status), memory = try #require(status.memory)
        status.level = "critical"
        (memory.observed, memory.evidence, memory.heldFor, memory.heldUntilSeconds) = ("normal", "none", "growth", 104.2)
        status.memory = memory
        status.admissions = manager.status.admissions
        (status.admissions[0].refused, status.admissions[0].refusedPerSecond) = (5, 2.5)
        answer.status = status
        let text = AdminText.status(status)
        #expect(text.contains("level      critical, held until 4.2 s from now, because of: growth\n"), "\(text)")
        #expect(text.contains("evidence   none in the last reading, which showed normal"), "\(text)")
        #expect(text.contains("growth     3 MiB/s: at this rate usage meets the limit in 32 s\n"), "\(text)")
        #expect(text.contains("5 refused; memory is short, and 2.5 are refused a second"), "\(text)")
        #expect(text.contains("heap caches 100 MiB") && text.contains("caches     2 hold"))
        #expect(TopViewTests.frame(answer, 132, 24).contains("critical, held until 4.2 s from now, because of: growth, 12 MiB short"))
        let sentences = AdminExplanation(status).sentences
        #expect(
            sentences[0].contains("critical is held for 4.2 s more, unless a reading shows it again. The level was reached because usage grows"),
            "\(sentences)")
        #expect(sentences[1] == "Since memory is short, \"http\" refuses 2.5 a second.")
    }

    @Test func `a column's heading names the counted quantity`() {
        manager.register("sqlite", byteCount: { 4096 }, release: { _ in 0 })
        #expect(AdminText.caches(manager.status.holders).split(separator: "\n")[0].hasSuffix("rebuild cost"))
    }

    /// Returns a cache of at most 96 MiB, with a share of 32 MiB.
    static func worth() -> WorthStatus {
        let curve = MissCurve(
            requests: 100, points: [.init(bytes: 24 << 20, misses: 50), .init(bytes: 48 << 20, misses: 25), .init(bytes: 96 << 20, misses: 0)])
        return WorthStatus(CacheWorth(curve: curve, share: 24 << 20, target: 48 << 20, requestsPerSecond: 120, loadTime: 5e7))
    }

    @Test func `shares are shown with their curves and the effect of another share`() {
        manager.register("pages\u{1B}", byteCount: { 4096 }, release: { _ in 0 })
        var holders = manager.status.holders
        #expect(!AdminText.caches(holders).contains("share"))
        holders[0].worth = Self.worth()
        let lines = AdminText.caches(holders).split(separator: "\n").map { $0.split(separator: " ").joined(separator: " ") }
        #expect(lines.contains("name share best requests load 64 MiB more 64 MiB less"), "\(lines)")
        // 24 + 64 MiB miss 4.2 % instead of 50 %: 55 of 120 requests a second save 50 ms each. None misses all.
        #expect(lines.contains("pages\u{FFFD} 24 MiB 48 MiB 120/s 50 ms +165 s -180 s"), "\(lines)")
        #expect(AdminText.curve(Self.worth(), columns: 8) == "▇▅|▄▃▂▂▁▁")
        #expect(lines.contains { $0.hasPrefix("pages\u{FFFD} ") && $0.hasSuffix(" 96 MiB") && $0.contains("|") })
    }

    /// Returns the status of a service whose largest request was cancelled.
    private func statusWithRequests() throws -> ManagerStatus {
        var status = try #require(try TopViewTests.answer(actions: 1).status)
        status.requests = RequestsStatus(
            isMetered: true, running: 12, heldBytes: 84 << 20, cancelledOverLimit: 2, cancelledForPressure: 1,
            largest: [
                .init(name: "POST /import\u{1B}", heldBytes: 31 << 20, peakBytes: 40 << 20, limitBytes: 64 << 20, isCancelled: true),
                .init(name: "GET /", heldBytes: 1 << 20, peakBytes: 1 << 20, limitBytes: nil, isCancelled: false),
            ])
        var report = ActionReport(
            eventID: 1, action: .cancelLargestRequest(above: .mebibytes(8)), level: .critical, evidence: .headroom, began: .seconds(97))
        (report.cancelledRequest, report.cancelledBytes) = ("POST /import\u{1B}", .mebibytes(31))
        status.actions = [ActionStatus(report)]
        return status
    }

    @Test func `requests that hold most are shown in each text, and a cancelled one is named`() throws {
        let status = try statusWithRequests(), text = AdminText.status(status)
        #expect(
            text.contains("requests   12 hold 84 MiB, most POST /import\u{FFFD} with 31 MiB; 2 cancelled above their limits, 1 for pressure\n"),
            "\(text)")
        #expect(text.contains("3 s ago  cancel largest request (headroom): POST /import\u{FFFD} held 31 MiB"), "\(text)")
        #expect(
            AdminExplanation(status).sentences.last
                == "3 s ago, at level critical, because little is left below the limit: the request \"POST /import\u{FFFD}\", which held 31 MiB, was cancelled."
        )
        var answer = try TopViewTests.answer()
        answer.status = status
        let frame = TopViewTests.frame(answer, 100, 24)
        #expect(
            frame.contains("REQUESTS\n") && frame.contains("31 MiB of 64 MiB   cancelled") && frame.contains("1 MiB             peak 1 MiB"),
            "\(frame)")
        answer.status?.requests?.running = 0
        #expect(!TopViewTests.frame(answer, 100, 24).contains("REQUESTS"))
        var unmetered = try #require(status.requests)
        unmetered.isMetered = false
        #expect(AdminText.requests(unmetered).contains("charged bytes only: the allocator does not count"))
        #expect(try AdminText.status(#require(try TopViewTests.answer().status)).contains("requests") == false, "from a version without the field")
    }

    @Test func `a move of memory is explained`() throws {
        var status = manager.status
        let move = Divider.Move(
            began: .seconds(1), at: .seconds(4), gain: 0.123,
            changes: [
                .init(name: "small", before: 5 << 20, after: 3 << 20), .init(name: "same", before: 7, after: 7),
                .init(name: "pages", before: 32 << 20, after: 34 << 20),
            ])
        status.atSeconds = 6
        status.moves = [MoveStatus(move)]
        #expect(
            AdminExplanation(status).sentences.last
                == "2 s ago, shares of memory moved: \"pages\" from 32 MiB to 34 MiB, \"small\" from 5 MiB to 3 MiB. In the end the move saves 12.3 % of the load time that memory can save."
        )
        #expect(AdminExplanation(status, last: 0).sentences.last == "No action so far.")
        status.moves = nil
        #expect(AdminExplanation(status).sentences.last == "No action so far.")
    }

    @Test(arguments: [
        ("refused: the ladder is off", "pausable components were to be paused, which was refused: the ladder is off."),
        ("overran: a, b", "pausable components were paused. Not within its time: a, b."), ("done", "pausable components were paused."),
    ])
    func `a sentence about a refused action does not claim the action`(outcome: String, sentence: String) throws {
        var status = try #require(try TopViewTests.answer(actions: 1).status)
        (status.actions[0].action, status.actions[0].outcome) = ("quiesce", outcome)
        #expect(AdminExplanation(status).sentences.last?.hasSuffix(": " + sentence) == true, "\(AdminExplanation(status).sentences)")
    }

    @Test(arguments: [
        ("/proc/pressure/memory, the machine's, as no group is to be seen", "all tasks of the machine, since it was started"),
        ("/sys/fs/cgroup/a/memory.pressure", "the group's tasks, since the group was made"),
    ])
    func `doctor names the group or host of the stall`(detail: String, whose: String) {
        let capabilities = Capabilities(support: .ownGroup, signals: [.init("stall", isLive: true, detail)])
        let reading = PressureReading(at: .zero, boundary: .maximum, limit: .mebibytes(64), stall: .init(some: .milliseconds(485)))
        let text = DoctorCommand.text(capabilities, reading)
        #expect(text.contains("stalled     485 ms: " + whose), "\(text)")
    }
}
