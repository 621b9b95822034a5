import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLinux

/// The format of a black box.
@Suite(.timeLimit(.minutes(5))) struct BoxContentsTests {
    private let memory = BoxMemory()
    private let sample = BoxContents.Sample(
        at: .milliseconds(1234), wall: .seconds(1_700_000_001), usage: 987_654_321, available: 4096, limit: 1 << 40,
        charged: 3 << 20, volatile: 5 << 20, resident: 7 << 20, growth: 11 << 20, lazyFreed: 13 << 20, kills: 2,
        level: .critical, observed: .warning, evidence: [.headroom, .stall], isDryRun: true, tasks: 17)

    init() { BoxMemory.writer.write(to: memory.start) }

    @Test func `the latest census is read, with the beginnings of the largest types' names`() throws {
        #expect(try memory.contents().census == nil)
        let long = String(repeating: "Nested<", count: 40)
        let rows = (0..<40).map { RecordedCensus.Row(name: $0 == 0 ? long : "Type\($0)", count: $0, bytes: 1 << 40 - $0) }
        for sequence in 1...3 as ClosedRange<UInt32> {
            RecordedCensus(at: .seconds(Int64(sequence)), rows: rows).write(
                to: memory.start + BoxLayout.censuses.place(sequence), sequence: sequence)
        }
        let census = try #require(try memory.contents().census)
        #expect(census.at == .seconds(3) && Array(census.rows.dropFirst()) == Array(rows[1..<BoxLayout.types]))
        #expect(census.rows.first?.name.count ?? 0 > 100 && long.hasPrefix(census.rows[0].name))
        // A kill during the write of the third census leaves the second.
        memory.start.storeBytes(of: 1, toByteOffset: BoxLayout.censuses.place(3) + 300, as: UInt8.self)
        #expect(try memory.contents().census?.at == .seconds(2))
    }

    @Test func `written records are read back`() throws {
        var unlimited = sample
        (unlimited.available, unlimited.limit, unlimited.kills, unlimited.isDryRun) = (nil, nil, nil, false)
        sample.write(to: memory.start + BoxLayout.turns.place(1), sequence: 1)
        unlimited.write(to: memory.start + BoxLayout.turns.place(2), sequence: 2)
        var report = ActionReport(
            eventID: 1, action: .release, level: .warning, evidence: [], began: .milliseconds(7), took: .milliseconds(9),
            asked: .mebibytes(4), released: .mebibytes(3), releasedVolatile: .mebibytes(2), taken: .mebibytes(1))
        BoxContents.Report.write(report, to: memory.start + BoxLayout.reports.place(1), sequence: 1)
        (report.action, report.outcome) = (.suspend, .refused("no supervisor"))
        BoxContents.Report.write(report, to: memory.start + BoxLayout.reports.place(2), sequence: 2)
        report.outcome = .overran(["first", "second"])
        BoxContents.Report.write(report, to: memory.start + BoxLayout.reports.place(3), sequence: 3)

        let contents = try memory.contents()
        #expect(contents.writer == BoxMemory.writer && contents.end == nil && contents.killsAtNextStart == nil)
        #expect(contents.samples == [sample, unlimited])
        #expect(contents.reports.map(\.outcome) == [.done, .refused, .overran])
        #expect(contents.reports.map(\.text) == ["", "no supervisor", "first"] && contents.reports.map(\.severity) == [1, 5, 5])
        let first = contents.reports[0], mebibyte = 1 << 20
        #expect(first.at == .milliseconds(7) && first.took == .milliseconds(9))
        #expect(
            [first.asked, first.released, first.releasedVolatile, first.taken]
                == [4 * mebibyte, 3 * mebibyte, 2 * mebibyte, mebibyte])
    }

    @Test func `a ring keeps the newest records, in order`() throws {
        let count = BoxLayout.turns.count
        for number in 1...UInt32(count + 5) {
            var sample = sample
            sample.at = .seconds(Double(number))
            sample.write(to: memory.start + BoxLayout.turns.place(number), sequence: number)
        }
        let samples = try memory.contents().samples
        #expect(samples.map(\.at) == (6...count + 5).map { .seconds($0) })
    }

    @Test func `seconds before the oldest turn are added to the turns`() throws {
        for number in 1...UInt32(4) {
            var sample = sample
            sample.at = .seconds(Double(number))
            sample.write(to: memory.start + BoxLayout.seconds.place(number), sequence: number)
            sample.at = .seconds(Double(number) + 2)
            sample.write(to: memory.start + BoxLayout.turns.place(number), sequence: number)
        }
        #expect(try memory.contents().samples.map(\.at) == (1...6).map { .seconds($0) })
    }

    @Test func `a record with any byte changed is left out, and the others are read`() throws {
        for number in 1...UInt32(3) {
            sample.write(to: memory.start + BoxLayout.turns.place(number), sequence: number)
        }
        let whole = memory.bytes, place = BoxLayout.turns.place(2)
        for offset in 0..<BoxLayout.turns.size {
            var bytes = whole
            bytes[place + offset] ^= 0x40
            #expect(try BoxContents(bytes).samples.count == 2)
        }
        // A whole record in a foreign place does not count as a record of the ring either.
        var moved = whole
        moved.replaceSubrange(
            place..<place + BoxLayout.turns.size, with: whole[BoxLayout.turns.place(3)..<BoxLayout.turns.place(4)])
        #expect(try BoxContents(moved).samples.count == 2)
    }

    @Test func `random bytes after a whole header are read without a record`() throws {
        let seed = newSeed()
        var random = SeededGenerator(seed: seed)
        for _ in 0..<20 {
            var bytes = memory.bytes
            for index in BoxLayout.headerSize..<bytes.count { bytes[index] = UInt8.random(in: 0...255, using: &random) }
            let contents = try BoxContents(bytes)
            #expect(contents.samples.isEmpty && contents.reports.isEmpty && contents.tables.isEmpty, "seed \(seed)")
        }
    }

    @Test func `a text that does not fit is cut after a whole character`() throws {
        var report = ActionReport(eventID: 1, action: .suspend, level: .warning, evidence: [], began: .zero)
        report.outcome = .refused(String(repeating: "ä", count: BoxLayout.reportText))
        BoxContents.Report.write(report, to: memory.start + BoxLayout.reports.place(1), sequence: 1)
        report.outcome = .refused("a" + String(repeating: "ä", count: BoxLayout.reportText))
        BoxContents.Report.write(report, to: memory.start + BoxLayout.reports.place(2), sequence: 2)
        let texts = try memory.contents().reports.map(\.text), half = BoxLayout.reportText / 2
        #expect(texts == [String(repeating: "ä", count: half), "a" + String(repeating: "ä", count: half - 1)])
    }

    @Test func `a file that is no black box, of another format, truncated or with a damaged header gives the reason`() {
        func damage(_ change: (inout [UInt8]) -> Void) -> BoxContents.Damage? {
            var bytes = memory.bytes
            change(&bytes)
            do throws(BoxContents.Damage) { _ = try BoxContents(bytes) } catch { return error }
            return nil
        }
        #expect(damage { _ in } == nil)
        #expect(damage { $0 = [] }?.isForeign == true)
        #expect(damage { $0[4] ^= 1 }?.isForeign == true)
        #expect(damage { $0[12] = 9 }?.description == "it has format 9, and this program reads \(BoxLayout.version)")
        #expect(damage { $0.removeLast() }?.isForeign == false)
        #expect(damage { $0[100] ^= 1 }?.description == "its header is damaged")
    }

    @Test func `the file has 256 KiB at the most`() {
        #expect(BoxLayout.size <= 256 << 10 && BoxLayout.turns.offset >= BoxLayout.headerSize + 8)
    }
}
