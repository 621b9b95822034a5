import Foundation
import Plimsoll
import TestSupport
import Testing

@testable import PlimsollDemos
@testable import PlimsollLifecycle

@Suite struct LifecycleDemoTests {
    // MARK: Judging

    @Test func `a fully observed run misses nothing, with and without the freezer`() {
        var record = LifecycleRecords.complete
        #expect(LifecycleExpectation.missed(by: record) == [])
        record.freezerRefusal = "none here"
        #expect(LifecycleExpectation.all(for: record).count < LifecycleExpectation.all(for: LifecycleRecords.complete).count)
    }

    @Test func `T30 a tick under way when the process stopped may precede the tick that knows of the gap`() {
        var record = LifecycleRecords.complete
        LifecycleRecords.add(LifecycleEvent(.tick, number: 0, at: .seconds(21.1)), 1, to: &record)
        record.seen.sort { $0.at < $1.at }
        #expect(LifecycleExpectation.missed(by: record) == [])
    }

    @Test func `ticks may go on until the process is inactive, later than the scenes`() {
        var record = LifecycleRecords.complete
        LifecycleRecords.add(LifecycleEvent("tenant-42", .active, .inactive, .interruption, at: .seconds(3.01)), 1, to: &record)
        LifecycleRecords.add(LifecycleEvent(.tick, number: 0, at: .seconds(3.09)), 1, to: &record)
        record.seen.sort { $0.at < $1.at }
        #expect(LifecycleExpectation.missed(by: record) == [])
    }

    @Test func `a run with no observations misses every event`() {
        let blank = LifecycleRecord()
        #expect(LifecycleExpectation.missed(by: blank).count == LifecycleExpectation.all(for: blank).count)
    }

    /// Changes that remove one observation from a good run, each with the words that the missed event must contain.
    private static let flaws: [(String, @Sendable (inout LifecycleRecord) -> Void)] = [
        ("an interruption makes the process inactive", { $0.set(.answered, from: 3, to: 4.7) }),
        ("in the background the port is closed", { $0.set(.silent, from: 11, to: 12) }),
        ("as suspended", { record in record.seen.removeAll { $0.event.to == "suspended" } }),
        (
            "as suspended",
            { record in
                for index in record.seen.indices where record.seen[index].event.kind == .resumed && record.seen[index].at < .seconds(20) {
                    record.seen[index].event.microseconds = 100_000
                }
            }
        ),
        ("a freeze in the foreground", { record in record.seen.removeAll { $0.event.kind == .resumed && $0.at > .seconds(20) } }),
        ("not while the process is inactive", { LifecycleRecords.add(LifecycleEvent(.tick, number: 0, at: .seconds(4)), 1, to: &$0) }),
        ("ticks missed during a stop", { $0.setMissed(0, from: 14, to: 16) }),
        (
            "ticks missed during a freeze",
            { record in
                for number in 0..<8 {
                    LifecycleRecords.add(
                        LifecycleEvent(.tick, number: number == 0 ? 12 : 0, at: .seconds(21.2 + Double(number) * 0.001)), 1, to: &record)
                }
                record.seen.sort { $0.at < $1.at }
            }
        ),
        ("finds no state", { $0.set(number: 3, of: .restored, at: 0) }),
        ("wiped its key", { record in record.seen.removeAll { $0.event.kind == .wiped } }),
        ("wiped its key", { record in record.seen.removeAll { $0.event.kind == .saved && $0.at < .seconds(10) } }),
        ("asked to stop", { $0.set(number: 100, of: .ended, at: 0) }),
        ("asked to stop", { record in record.seen.removeAll { $0.event.kind == .expired } }),
        ("many changes of a file", { $0.set(number: 1, of: .changed, at: 0) }),
        (
            "many changes of a file",
            { record in
                let first = record.events(.changed)[0]
                record.seen.append(.init(run: 1, at: .seconds(14.3), event: first.event))
            }
        ),
        ("counts as unchanged", { record in record.seen.append(.init(run: 1, at: .seconds(21.2), event: record.events(.changed)[0].event)) }),
        ("higher epoch", { $0.set(number: 3, of: .locked, at: 1) }),
        ("restores the last state", { $0.set(number: 25, of: .restored, at: 1) }),
        ("clients wait", { $0.set(.answered, from: 18.05, to: 21) }),
        ("SIGTERM ends the process in order", { $0.endings[0].status = 137 }),
        ("SIGTERM ends the process in order", { record in record.seen.removeAll { $0.event.kind == .terminating } }),
        ("the second launch", { $0.endings[1].status = 1 }),
        (
            "the scenes are in the background before",
            { record in record.seen.removeAll { $0.event.unit == "tenant-42" && $0.event.to == "background" } }
        ),
        ("one that the system requested", { record in record.seen.removeAll { $0.event.unit == "archive" } }),
    ]

    @Test(arguments: flaws.indices)
    func `an unseen event is named, and no other event`(index: Int) {
        let (words, spoil) = Self.flaws[index]
        var record = LifecycleRecords.complete
        spoil(&record)
        let missed = LifecycleExpectation.missed(by: record)
        #expect(missed.count == 1 && missed.first?.contains(words) == true, "\(missed)")
    }

    // MARK: Observations

    @Test func `bands follow each other from the launch to the end of the run`() throws {
        let record = LifecycleRecords.complete
        for unit in record.units {
            let bands = record.bands(of: unit)
            #expect(bands.first?.from == .zero)
            for (band, next) in zip(bands, bands.dropFirst()) { #expect(band.to == next.from && band.from < band.to) }
            #expect(bands.last?.to == .seconds(25))
        }
        #expect(record.state(at: .seconds(12)) == .background)
        #expect(record.state(at: .seconds(23.7)) == .notRunning)
        #expect(record.spans(from: .listening, to: .closed).map(\.to) == [.seconds(6), .seconds(23.5), .seconds(25)])
    }

    @Test func `events cross the line unchanged`() throws {
        let event = LifecycleEvent("process", .inactive, .active, .launch, at: .seconds(3))
        #expect(try JSONLine.decode(LifecycleEvent.self, from: JSONLine.encode(event)) == event)
        #expect(event.state == .active)
        for kind in LifecycleEvent.Kind.allCases where kind != .tick {
            #expect(LifecycleTimeline.text(LifecycleEvent(kind)) != nil)
        }
        #expect(LifecycleTimeline.line("what", .active, at: .seconds(1.5)) == "  1.50 s  active     what")
    }

    // MARK: Drawing

    @Test(arguments: [false, true])
    func `no text of the chart covers another or leaves the picture`(isEmpty: Bool) {
        let svg = LifecycleChart(isEmpty ? LifecycleRecord() : LifecycleRecords.complete).svg
        let texts = ChartTexts(svg)
        #expect(texts.boxes.count > (isEmpty ? 5 : 30))
        texts.expectReadable()
        #expect(svg.contains("prefers-color-scheme: dark"))
    }

    @Test func `labels stand beside each other where they can, and no line cuts a label`() {
        let rows = LabelRows([(0, "first"), (10, "second"), (500, "far away"), (12, "third")], end: 1000)
        #expect(rows.labels.map(\.text) == ["first", "second", "third", "far away"])
        #expect(rows.labels.map(\.row) == [0, 1, 2, 0])
        for seed in seeds(0..<50) {
            var number = seed
            let marks = (0..<20).map { index -> (at: Double, text: String) in
                number = number &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
                return (Double(number >> 54), String(repeating: "x", count: 3 + index))
            }
            let rows = LabelRows(marks, end: 1050)
            #expect(rows.labels.count == 20)
            for (index, label) in rows.labels.enumerated() {
                #expect(label.x >= 0 && label.x + label.width <= 1050)
                for other in rows.labels.dropFirst(index + 1) where other.row == label.row {
                    #expect(label.x + label.width <= other.x || other.x + other.width <= label.x, "seed \(seed)")
                }
            }
        }
    }

    // MARK: On a real kernel

    /// The reason why no process can be frozen here; `nil` if processes can.
    private static let obstacle: String? = {
        do {
            // Not "test": `ProcessTests.obstacle` makes a group of that name, perhaps at the same time.
            _ = try FreezerGroup("test-freezer", program: ProcessTests.program).remove()
            return nil
        } catch {
            return "\(error)"
        }
    }()

    @Test(.needs(obstacle == nil, "nothing can be frozen here"))
    func `K36 a process in a frozen group does not run, and can still be killed`() throws {
        let group = try FreezerGroup("still", program: ProcessTests.program)
        defer { #expect(group.remove()) }
        #expect(!group.isFrozen)
        try group.freeze()
        let child = try group.start(["--help"])
        defer { child.end(within: .zero) }
        blockUntil("the child in its group") { ControlFile.text("/proc/\(child.pid)/cgroup")?.contains("still") == true }
        #expect(child.poll() == nil)
        try group.thaw()
        #expect(child.waitForEnd() == .exited(0))
    }
}

extension LifecycleRecord {
    /// Sets the number of an event of `kind`: the first event, or a later one at `place`.
    fileprivate mutating func set(number: Int, of kind: LifecycleEvent.Kind, at place: Int) {
        let places = seen.indices.filter { seen[$0].event.kind == kind }
        seen[places[place]].event.number = number
    }

    /// Sets the number of missed ticks for all ticks of a span.
    fileprivate mutating func setMissed(_ count: Int, from: Double, to: Double) {
        for index in seen.indices where seen[index].event.kind == .tick && seen[index].at >= .seconds(from) && seen[index].at < .seconds(to) {
            seen[index].event.number = count
        }
    }

    /// Sets the outcome of all requests of a span.
    fileprivate mutating func set(_ outcome: Outcome, from: Double, to: Double) {
        for index in requests.indices where requests[index].at >= .seconds(from) && requests[index].at < .seconds(to) {
            requests[index].outcome = outcome
        }
    }
}
