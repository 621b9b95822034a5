import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Work that an expiring task passes on.
@Suite(.serialized, .timeLimit(.minutes(5))) struct BackgroundTaskHandoverTests {
    struct Refused: Error {}

    let clock = ManualClock()
    let store = MemoryStateStore()

    private func manager() -> ResourceManager { ResourceManager(source: ScriptedPressureSource(), time: clock.timekeeper) }

    /// Begins a task that hands `payloads` over on expiration, expires the task, and returns the places of the
    /// payloads.
    private func expire(_ manager: ResourceManager, handingOver payloads: [[UInt8]]) async -> [String?] {
        let places = Log<String?>()
        let task = manager.beginBackgroundTask("export") { task, _ in
            for payload in payloads { places.add(task.handOver(payload)) }
            task.end()
        }
        await manager.expired(.shutdown)
        #expect(!task.isActive)
        return places.all
    }

    @Test func `C73 unfinished work goes to the sink, and the sweep waits for the answer`() async {
        let manager = manager(), taken = Log<[UInt8]>(), goOn = Counter(), over = Counter()
        manager.onHandover { work in
            await until { goOn.value != 0 }
            taken.add(work.bytes + Array(work.name.utf8))
        }
        let task = manager.beginBackgroundTask("x") { task, _ in
            task.handOver([1, 2])
            task.end()
        }
        manager.parts.tasks.expire(.shutdown, within: .seconds(60)) { names in over.add(names.isEmpty ? 1 : 100) }
        await until { !task.isActive }
        #expect(over.value == 0 && manager.parts.tasks.hasLiveTasks)
        goOn.add(1)
        await until { over.value != 0 }
        #expect(over.value == 1 && taken.all == [[1, 2, 120]] && manager.claimHandovers().isEmpty && !manager.parts.tasks.hasLiveTasks)
    }

    @Test func `C73 an unanswered offer holds the sweep no longer than the grace, and no work is lost`() async {
        let manager = manager(), release = Counter(), names = Log<[String]>()
        #expect(manager.persistHandovers(in: store) == nil)
        manager.onHandover { _ in
            await until { release.value != 0 }
            throw Refused()
        }
        let task = manager.beginBackgroundTask("x") { task, _ in
            task.handOver([7])
            task.end()
        }
        manager.parts.tasks.expire(.shutdown, within: .seconds(5)) { names.add($0) }
        await until { !task.isActive }
        clock.advance(by: .seconds(5))
        #expect(names.all == [["1 handed over"]] && manager.claimHandovers().isEmpty, "the sink has it still")
        // The process ends here; the next one finds the work.
        let next = self.manager()
        #expect(next.persistHandovers(in: store) == nil && next.claimHandovers().map(\.bytes) == [[7]])
        release.add(1)
        await until { !manager.parts.tasks.hasLiveTasks }
        #expect(manager.claimHandovers().map(\.bytes) == [[7]])
    }

    @Test func `C73 work without a sink is kept for the next start, once, under the same id`() async {
        let first = manager()
        #expect(first.persistHandovers(in: store) == nil)
        #expect(await expire(first, handingOver: [[1], [2], [3]]) == [nil, nil, nil])

        let second = manager()
        #expect(second.persistHandovers(in: store) == nil)
        let works = second.claimHandovers()
        #expect(works.map(\.bytes) == [[1], [2], [3]] && works.allSatisfy { $0.name == "export" } && Set(works.map(\.id)).count == 3)
        #expect(second.claimHandovers().isEmpty, "each is claimed once a run")
        works[1].accept()
        works[1].accept()
        _ = await expire(second, handingOver: [[4]])

        let third = manager()
        third.persistHandovers(in: store)
        let left = third.claimHandovers()
        #expect(left.map(\.bytes) == [[1], [3], [4]] && left[0].id == works[0].id && left[1].id == works[2].id)
        for work in left { work.accept() }
        let fourth = manager()
        fourth.persistHandovers(in: store)
        #expect(fourth.claimHandovers().isEmpty)
    }

    @Test func `C73 work is delivered once although the same store is set twice`() async {
        let manager = manager(), next = self.manager()
        #expect(manager.persistHandovers(in: store) == nil)
        #expect(await expire(manager, handingOver: [[1], [2]]) == [nil, nil])
        #expect(manager.persistHandovers(in: store) == nil)
        let works = manager.claimHandovers()
        #expect(works.map(\.bytes) == [[1], [2]])
        for work in works { work.accept() }
        #expect(next.persistHandovers(in: store) == nil && next.claimHandovers().isEmpty)
    }

    @Test func `C73 work that a sink refuses is kept, and accepted work is never delivered again`() async {
        let manager = manager(), offers = Log<[UInt8]>()
        manager.persistHandovers(in: store)
        manager.onHandover { work in
            offers.add(work.bytes)
            if work.bytes == [2] { throw Refused() }
        }
        _ = await expire(manager, handingOver: [[1], [2]])
        #expect(Set(offers.all) == [[1], [2]])
        #expect(manager.claimHandovers().map(\.bytes) == [[2]])
        let next = self.manager()
        next.persistHandovers(in: store)
        #expect(next.claimHandovers().map(\.bytes) == [[2]])
    }

    @Test func `C73 without sink and store the answer names memory as the place, and a later store takes the work`() async {
        let manager = manager()
        let unkept = await expire(manager, handingOver: [[9]]).compactMap(\.self)
        #expect(unkept.count == 1 && unkept[0].contains("persistHandovers"))
        #expect(manager.persistHandovers(in: store) == nil)
        let next = self.manager()
        next.persistHandovers(in: store)
        #expect(next.claimHandovers().map(\.bytes) == [[9]])
        store.fail(with: Refused())
        let unwritten = await expire(next, handingOver: [[8]]).compactMap(\.self)
        #expect(unwritten.count == 1 && unwritten[0].contains("cannot write"))
    }

    @Test func `C73 a store with foreign content means a clean start with a reason, and that content is put aside`() async throws {
        let first = manager()
        first.persistHandovers(in: store)
        _ = await expire(first, handingOver: [[1, 2, 3]])
        let good = try #require(try store.read(StateName.handovers))
        var newer = good
        newer["PLIMSOLL-HANDOVERS".utf8.count] = 9
        var bent = good
        bent[30] ^= 1
        for (bytes, reason) in [
            ([], "truncated"), (Array(good.dropLast(1)), "damaged"), (bent, "damaged"), (newer, "version 9"), ([1, 2], "truncated"),
        ] {
            try store.write(StateName.handovers, bytes)
            let manager = manager()
            #expect(manager.persistHandovers(in: store)?.contains(reason) == true)
            #expect(manager.claimHandovers().isEmpty)
            #expect(store.aside.last?.bytes == bytes)
        }
        for count in 0..<good.count {
            try store.write(StateName.handovers, Array(good.prefix(count)))
            #expect(manager().persistHandovers(in: store) != nil)
        }
    }

    @Test(arguments: [(Int64.min, nil), (-1, nil), (.max / 2, nil), (.max, nil), (7, 8)] as [(Int64, Int64?)])
    func `C73 a store with impossible identifiers is set aside, and new work is kept`(last: Int64, entry: Int64?) async {
        var kept = KeptBytes("PLIMSOLL-HANDOVERS", version: 1)
        kept.put(last)
        kept.put(entry == nil ? 0 : 1)
        if let entry {
            kept.put(entry)
            kept.put("upload".utf8)
            kept.put([1, 2])
        }
        try? store.write(StateName.handovers, kept.sealed())
        let manager = manager()
        #expect(manager.persistHandovers(in: store)?.contains("identifier") == true)
        #expect(await expire(manager, handingOver: [[1]]) == [nil])
        #expect(manager.claimHandovers().map(\.bytes) == [[1]])
    }
}
