import Testing

@testable import Plimsoll

/// The tasks of one shard: their phases, their counts, and their room.
@Suite struct BackgroundTaskShardTests {
    private let shard = BackgroundTaskShard()

    private func record(_ name: String) -> BackgroundTaskRecord {
        BackgroundTaskRecord(name, "file", 1, begun: .zero, shard: shard, handler: nil)
    }

    /// Begins tasks with the names "0", "1" and so on.
    private func begin(_ names: Range<Int>) -> [BackgroundTaskRecord] {
        names.map { name in
            let record = record("\(name)")
            #expect(shard.begin(record) == nil)
            return record
        }
    }

    private func select() { shard.applyGate(nil, isWatched: false, expiring: true) }

    @Test func `a task that ends while selected is not asked to stop`() {
        shard.addRoom(5)
        let records = begin(0..<3)
        #expect(!shard.isExpiring)
        select()
        #expect(shard.isExpiring && shard.tally.expiring == 0)
        shard.end(records[1])
        let asked = shard.expireSome().map { $0.0.name }
        #expect(asked == ["0", "2"] && shard.isExpiring && shard.expireSome().isEmpty)
        #expect(records.map(\.phase) == [.expiring, .ended, .expiring])
        shard.end(records[0], isDropped: true)
        #expect(shard.count == 2 && shard.tally.expiring == 2, "the handler may be at work")
        for record in records + records { shard.end(record) }
        let tally = shard.tally
        #expect(!shard.isExpiring && tally.count == 0 && tally.expiring == 0 && tally.ended == 3 && tally.expired == 2)
        #expect(shard.takeRoom() == 5 && shard.takeRoom() == 0)
    }

    @Test func `a single task that was asked to stop is being expired until its end`() {
        shard.addRoom(1)
        let records = begin(0..<1)
        select()
        #expect(shard.expireSome().count == 1 && shard.isExpiring && shard.tally.expiring == 1)
        shard.end(records[0])
        #expect(!shard.isExpiring && shard.tally.expiring == 0)
    }

    @Test func `tasks that end while selected leave nothing to ask`() {
        shard.addRoom(2)
        let records = begin(0..<2)
        select()
        for record in records { shard.end(record) }
        #expect(!shard.isExpiring && shard.expireSome().isEmpty && shard.giveUpSome().isEmpty && shard.count == 0)
    }

    @Test func `tasks asked to stop are given up before tasks that are only selected`() {
        shard.addRoom(5)
        let asked = begin(0..<2)
        select()
        #expect(shard.expireSome().count == 2)
        let selected = begin(2..<4)
        select()
        let left = shard.giveUpSome().map { $0.0.name }
        #expect(left == ["0", "1", "2", "3"] && (asked + selected).allSatisfy { $0.phase == .givenUp })
        let tally = shard.tally
        #expect(!shard.isExpiring && tally.count == 0 && tally.givenUp == 4 && tally.ended == 4 && tally.expired == 0)
        #expect(shard.giveUpSome().isEmpty && shard.takeRoom() == 5)
    }

    @Test func `a task is refused for a reason or for lack of room, and only a reason is counted here`() {
        #expect(shard.begin(record("no room")) == .tooMany && shard.tally.refused == 0)
        shard.addRoom(1)
        shard.applyGate(.suspended, isWatched: false, expiring: false)
        #expect(shard.begin(record("suspended")) == .suspended && shard.tally.refused == 1)
        shard.applyGate(nil, isWatched: false, expiring: false)
        let records = begin(0..<1)
        #expect(shard.begin(record("no room")) == .tooMany && shard.count == 1)
        for record in records { shard.end(record) }
    }

    @Test func `the oldest tasks of each kind are listed, those asked to stop first`() {
        shard.addRoom(10)
        let records = begin(0..<5)
        func names(_ most: Int) -> [String] { shard.records(atMost: most).map(\.name) }
        #expect(names(0).isEmpty && names(1) == ["0"] && names(2) == ["0", "1"] && names(.max).count == 5)
        select()
        #expect(shard.expireSome().count == 5)
        let others = begin(5..<8)
        #expect(names(2) == ["0", "1", "5", "6"] && names(.max) == (0..<8).map { "\($0)" })
        for record in records + others { shard.end(record) }
    }

    @Test(arguments: ["ended", "dropped", "asked and ended", "asked and given up", "selected and given up"])
    func `a task that has left is released`(way: String) {
        weak var left: BackgroundTaskRecord?
        do {
            let record = record("one")
            left = record
            shard.addRoom(1)
            #expect(shard.begin(record) == nil)
            if way.hasPrefix("asked") || way.hasPrefix("selected") { select() }
            if way.hasPrefix("asked") { #expect(shard.expireSome().count == 1) }
            if way.hasSuffix("given up") {
                #expect(shard.giveUpSome().count == 1)
            } else {
                shard.end(record, isDropped: way == "dropped")
            }
        }
        #expect(left == nil)
    }
}
