import TestSupport
import Testing

@testable import Plimsoll

/// The ring of reports, and listeners that are slower than the reports.
@Suite(.timeLimit(.minutes(5))) struct JournalTests {
    private func add(_ ids: ClosedRange<UInt64>, to journal: Journal) {
        for id in ids { _ = journal.add(ActionReport(eventID: id, action: .release, level: .warning, evidence: .headroom, began: .zero)) }
    }

    @Test func `each listener gets every report from its own beginning on, oldest first`() {
        let journal = Journal(capacity: 8), seen = Log<String>()
        add(1...2, to: journal)
        for name in ["a", "b"] { journal.listen { seen.add("\(name)\($0.eventID)") } }
        add(3...5, to: journal)
        let worker = Worker("reports") { journal.deliver($0, time: .running) }
        worker.start()
        worker.request()
        blockUntil("all reports") { seen.all.count >= 6 }
        worker.stop()
        #expect(seen.all == ["a3", "b3", "a4", "b4", "a5", "b5"] && journal.overwritten == 0)
    }

    @Test func `reports that were overwritten are counted, and listeners go on with the oldest one left`() {
        let journal = Journal(capacity: 4), seen = Log<UInt64>()
        journal.listen { seen.add($0.eventID) }
        add(1...10, to: journal)
        #expect(journal.reports.map(\.eventID) == [7, 8, 9, 10])
        let worker = Worker("reports") { journal.deliver($0, time: .running) }
        worker.start()
        worker.request()
        blockUntil("the reports left") { seen.all.count >= 4 }
        #expect(journal.overwritten == 6)
        add(11...12, to: journal)
        worker.request()
        blockUntil("the later reports") { seen.all.count >= 6 }
        worker.stop()
        #expect(seen.all == [7, 8, 9, 10, 11, 12] && journal.overwritten == 6)
    }

    @Test func `a reader goes on after the reports that it has read, as far as they are left`() {
        let journal = Journal(capacity: 4)
        var count = 0, seen: [UInt64] = []
        add(1...2, to: journal)
        journal.each(after: &count) { seen.append($0.eventID) }
        #expect(seen == [1, 2] && count == 2)
        add(3...3, to: journal)
        journal.each(after: &count) { seen.append($0.eventID) }
        journal.each(after: &count) { seen.append($0.eventID) }
        #expect(seen == [1, 2, 3] && count == 3)
        add(4...10, to: journal)
        journal.each(after: &count) { seen.append($0.eventID) }
        #expect(seen == [1, 2, 3, 7, 8, 9, 10] && count == 10)
    }
}
