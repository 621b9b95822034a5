import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollCLI
@testable import PlimsollDemos
@testable import PlimsollService

@Suite struct SizeTests {
    private func record(_ time: Int = 0, live: Int = 100 << 20, other: Int = 20 << 20, rate: Double = 10) -> CachesRecord {
        CachesRecord(
            atMicroseconds: time, liveBytes: live, otherBytes: other,
            caches: [.init(name: "pages", requestsPerSecond: rate, loadSeconds: 0.01, curve: [.init(bytes: 200 << 20, missRatio: 0)])])
    }

    @Test func `the limit holds live memory at peak, other purgeables and the caches below the warning line`() {
        let advice = SizeAdvice([record(live: 180 << 20, other: 60 << 20), record()])
        #expect(advice.live == .mebibytes(180) && advice.other == .mebibytes(20) && advice.names == ["pages"])
        #expect(advice.rows.map(\.loss) == [0, 0.01, 0.05, 0.1])
        for row in advice.rows {
            #expect(abs(row.caches.bytes - Int((1 - row.loss) * Double(200 << 20))) <= 2 << 20)
            #expect(abs(row.limit.bytes * 4 / 5 - (200 << 20) - row.caches.bytes) <= 1)
        }
    }

    @Test func `curves are weighted by their requests`() {
        var idle = record(rate: 1)
        idle.caches[0].curve = [.init(bytes: 200 << 20, missRatio: 1)]
        // In the idle hour memory saved nothing. The busy hour had a hundred times as many requests.
        #expect(abs(SizeAdvice([idle, record(rate: 100)]).rows[3].caches.bytes - 180 << 20) <= 3 << 20)
    }

    @Test func `the sizes of many huge caches add up to a number`() {
        var huge = record()
        huge.caches = (0..<8).map { number in
            var cache = huge.caches[0]
            (cache.name, cache.curve[0].bytes) = ("pages \(number)", 1 << 60)
            return cache
        }
        #expect(huge.problem == nil && SizeAdvice([huge]).known == .max)
    }

    @Test func `the text has a row for each loss, and says where the curves end`() {
        let text = SizeCommand.text([record()])
        let rows = text.split(separator: "\n").map { $0.split(separator: " ").joined(separator: " ") }
        #expect(rows.contains("load time lost caches limit") && rows.contains("none 200 MiB 400 MiB"), "\(text)")
        #expect(rows.contains("10 % 180 MiB 376 MiB") && text.hasSuffix("The curves end at 200 MiB: larger caches may save more."), "\(text)")
        var none = record()
        none.caches = []
        let reason = "No cache knows its curve: that takes two caches without a limit, divided by worth."
        #expect(SizeCommand.text([none]).contains("\(reason) Without caches, a limit of 150 MiB"))
        #expect(SizeCommand.text([]).hasPrefix("Nothing is known of memory"))
    }

    @Test func `a recording with caches is read back, and one of the older version has none`() throws {
        let header = Recording.Header(plimsollRecording: 2, kernel: "6.1", processors: 2, support: "ownGroup", liveSignals: [])
        let reading = PressureReading(at: .seconds(1), boundary: .none, usage: .zero)
        let lines = [JSONLine.encode(header), JSONLine.encode(ReadingRecord(reading)), JSONLine.encode(record(5))]
        let recording = try Recording(parsing: lines.map { $0 + "\n" }.joined())
        #expect(recording.readings == [reading] && recording.caches == [record(5)] && recording.problem == nil)
        var older = header
        older.plimsollRecording = 1
        let refused = try Recording(parsing: ([JSONLine.encode(older)] + lines.dropFirst()).map { $0 + "\n" }.joined())
        #expect(refused.caches.isEmpty && refused.problem?.line == 3)
    }

    @Test(arguments: [
        (#"{"atMicroseconds":0,"liveBytes":-1,"otherBytes":0,"caches":[]}"#, "-1 is no size or time"),
        (#"{"atMicroseconds":0,"liveBytes":1,"otherBytes":0}"#, "caches is missing"),
        (
            #"{"atMicroseconds":0,"liveBytes":1,"otherBytes":0,"caches":[{"name":"a","requestsPerSecond":-2,"loadSeconds":0,"curve":[]}]}"#,
            "-2.0 is no rate, ratio or load time"
        ),
    ])
    func `a line with impossible values is named`(line: String, reason: String) throws {
        let header = Recording.Header(plimsollRecording: 2, kernel: "6.1", processors: 2, support: "ownGroup", liveSignals: [])
        let recording = try Recording(parsing: JSONLine.encode(header) + "\n" + line + "\n")
        #expect(recording.problem == .init(line: 2, reason: reason))
    }

    @Test func `a service's numbers are kept in bounds`() throws {
        var status = try #require(try TopViewTests.answer(caches: 2).status)
        status.holders[0].worth = AdminTextTests.worth()
        status.holders[0].worth?.requestsPerSecond = .infinity
        status.holders[0].worth?.loadSeconds = -.nan
        status.holders[1].heldBytes = .min
        status.memory?.limitBytes = .max
        status.memory?.availableBytes = .min
        let record = try #require(CachesRecord(status, at: .zero))
        #expect(record.problem == nil && record.caches.count == 1 && record.otherBytes == 0)
        _ = JSONLine.encode(record)
        #expect(SizeAdvice([record, record]).rows.count == SizeAdvice.losses.count)
    }
}
