import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Registered purgeables, the meters that bound them, and the allocator behind them.
@Suite struct PurgeableRuleTests {
    private let meter = ChargeMeter {}, volatileMeter = ChargeMeter {}, registry = PurgeableRegistry()

    private func entry(
        _ purgeable: any Purgeable, _ place: PurgeablePlace = PurgeablePlace()
    ) -> PurgeableRegistry.Entry {
        PurgeableRegistry.Entry(purgeable, place, meter: meter, volatileMeter: volatileMeter)
    }

    // MARK: - The registry

    @Test func `volatile purgeables come first, then by cost, then by registration`() {
        let holders: [any Purgeable] = [
            NotedHolder("cheap", held: 1), NotedHolder("precious", held: 1, .precious),
            NotedVolatile("volatile, expensive", held: 1, .expensive), NotedHolder("trivial", held: 1, .trivial),
            NotedHolder("cheap, too", held: 1), NotedVolatile("volatile, cheap", held: 1),
        ]
        for holder in holders { registry.add(entry(holder)) }
        let entries = registry.snapshot
        #expect(
            entries.map(\.name) == [
                "volatile, cheap", "volatile, expensive", "trivial", "cheap", "cheap, too", "precious",
            ])
        #expect(registry.volatileRange(of: entries) == 0..<2 && registry.volatileRange(of: []) == 0..<0)
        #expect(entries[3].isSameClass(as: entries[4]) && !entries[2].isSameClass(as: entries[3]))
        #expect(!entries[0].isSameClass(as: entries[3]) && !entries[0].isSameClass(as: entries[1]))
    }

    @Test func `the registry knows if any purgeable is asked, and if one is without a meter, while registered`() {
        let kept = entry(NotedHolder(held: 1, releases: false)), metered = entry(NotedHolder(held: 1, isMetered: true))
        let plain = entry(NotedHolder(held: 1)), volatile = entry(NotedVolatile(held: 1))
        func state(_ change: (PurgeableRegistry) -> Void) -> [Bool] {
            change(registry)
            return [registry.hasReleasable, registry.hasUnmetered]
        }
        #expect(state { _ in } == [false, false])
        #expect(state { $0.add(kept) } == [false, false])
        #expect(state { $0.add(metered) } == [true, false])
        #expect(state { $0.add(plain) } == [true, true])
        #expect(state { $0.add(volatile) } == [true, true])
        #expect(state { $0.remove(plain) } == [true, false])
        #expect(state { $0.remove(plain) } == [true, false], "removed once")
        #expect(state { $0.remove(metered) } == [true, false])
        #expect(state { $0.remove(volatile) } == [false, false])
        #expect(registry.snapshot.map { $0 === kept } == [true])
    }

    @Test func `a purgeable takes a share of memory that it declares, if it may be asked`() {
        let metered = entry(NotedHolder(held: 1, isMetered: true)), plain = entry(NotedHolder(held: 1))
        let kept = entry(NotedHolder(held: 1, isMetered: true, releases: false))
        let volatile = entry(NotedVolatile(held: 1))
        let entries = [metered, plain, kept, volatile]
        #expect(entries.map { $0.shared != nil } == [true, false, false, true])
        #expect(entries.map(\.isShared) == [true, false, false, true])
        #expect(entries.map(\.isMetered) == [true, false, true, true])
        #expect(metered.pool == .heap && volatile.pool == .volatile && !metered.isPrompt)
        let fallen = PurgeableRegistry.Entry(NotedVolatile(held: 1), meter: meter, volatileMeter: meter)
        #expect(fallen.pool == .heap, "without volatile memory there is one meter")
    }

    @Test func `a share is never negative, and ends with the part that the cache takes`() {
        let entry = entry(NotedHolder(held: 1, rate: .nan, isMetered: true))
        #expect(entry.currentShare == 0 && entry.lastRate == nil)
        #expect(entry.held.load(ordering: .relaxed) == 0 && entry.offered.load(ordering: .relaxed) == 0)
        entry.readRate()
        #expect(entry.lastRate == nil)
        entry.setShare(5)
        #expect(entry.currentShare == 5)
        entry.setShare(-5)
        #expect(entry.currentShare == 0)
        entry.setShare(7)
        let curve = MissCurve(requests: 1, points: [])
        entry.worth.withLock {
            $0 = CacheWorth(curve: curve, share: 1, target: 1, requestsPerSecond: 1, loadTime: 1)
        }
        entry.stopSharing()
        let worth = entry.worth.withLock { $0 }
        #expect(entry.currentShare == 0 && worth == nil)
    }

    @Test func `the closures of an application keep nothing ready, and have no known rate`() {
        let closures = ClosurePurgeable("closures", rebuildCost: .cheap, held: { 1 }, release: { $0 })
        #expect(closures.dropSpares() == 0 && closures.rebuildTimePerByte == nil && closures.releasesUnderPressure)
    }

    // MARK: - Selections

    @Test func `a selection is by group, tag, name and cost, and a name alone selects what is kept`() {
        func entry(_ name: String, _ group: [String], _ tags: [String], _ cost: RebuildCost, releases: Bool = true)
            -> PurgeableRegistry.Entry
        {
            self.entry(NotedHolder(name, held: 1, cost, releases: releases), PurgeablePlace(group: group, tags: tags))
        }
        let entries = [
            entry("a", ["images"], ["x"], .trivial), entry("b", ["images", "small"], [], .cheap),
            entry("c", ["rows"], ["x", "y"], .expensive), entry("d", [], [], .precious, releases: false),
        ]
        func included(_ selection: PurgeableSelection) -> String {
            entries.filter(selection.includes).map(\.name).joined()
        }
        func asked(_ selection: PurgeableSelection) -> String {
            entries.filter(selection.mayAsk).map(\.name).joined()
        }
        #expect(included(.all) == "abcd" && asked(.all) == "abc")
        #expect(included(.group("images")) == "ab" && included(.group("images/small")) == "b")
        #expect(included(.group("")) == "" && asked(.group("")) == "" && included(.group("/")) == "")
        #expect(included(.group("small")) == "" && included(.tag("x")) == "ac" && included(.tag("z")) == "")
        #expect(included(.named("d")) == "d" && asked(.named("d")) == "d" && asked(.named("e")) == "")
        #expect(included(.all.upTo(.trivial)) == "a" && included(.all.upTo(.expensive)) == "abc")
        #expect(included(.all.upTo(.cheap).upTo(.expensive)) == "ab" && included(.all.upTo(.precious)) == "abcd")
        #expect(included(.tag("x").upTo(.cheap)) == "a" && included(.named("c").upTo(.cheap)) == "")
    }

    // MARK: - Meters

    @Test func `bytes are taken up to the ceiling, and up to what others lack by those who leave a reserve`() {
        let woken = Counter(), meter = ChargeMeter { woken.add(1) }
        meter.takeAnyway(50)
        meter.allow(100, since: 50)
        meter.share(from: [], lacking: 30)
        #expect(meter.heldBytes == 50 && meter.room == 100 && meter.room(leavesReserve: true) == 70)
        #expect(!meter.take(71, leavesReserve: true) && meter.take(70, leavesReserve: true))
        #expect(meter.room == 30 && meter.room(leavesReserve: true) == 0)
        #expect(!meter.take(31) && meter.take(30) && !meter.take(1))
        #expect(meter.heldBytes == 150 && meter.room == 0 && woken.value == 1, "woken once a reading")
        meter.takeAnyway(20)
        #expect(meter.room == 0)
        meter.give(21)
        #expect(meter.room == 1)
        meter.share(from: [], lacking: -5)
        #expect(meter.room(leavesReserve: true) == 1)
    }

    @Test(arguments: [ByteCount.zero, .max])
    func `without room, and without a bound, a meter wakes nobody`(allowance: ByteCount) {
        let woken = Counter(), meter = ChargeMeter { woken.add(1) }
        meter.allow(allowance, since: .zero)
        #expect(meter.take(Int.max / 2 + 100) == (allowance == .max) && woken.value == 0)
    }

    @Test func `numbers beyond all memory neither trap nor pass for room`() {
        let meter = ChargeMeter {}
        meter.takeAnyway(Int.max - 10)
        #expect(!meter.take(20) && meter.take(5) && meter.room == 5)
        meter.give(Int.max)
        #expect(meter.heldBytes == ByteCount(-5) && meter.room == Int.max)
    }

    // MARK: - Statistics

    @Test(arguments: [(0, 0, 0), (1, 0, 1), (0, 5, 0), (3, 1, 0.75)] as [(Int, Int, Double)])
    func `the ratio of hits is that of look-ups, and zero before the first one`(hits: Int, misses: Int, ratio: Double) {
        var statistics = CacheStatistics()
        #expect(statistics == CacheStatistics() && statistics.loadTime == .zero)
        let counts = [
            statistics.hits, statistics.misses, statistics.evictions, statistics.purged, statistics.droppedByKernel,
            statistics.expired, statistics.replaced, statistics.rejected, statistics.loads, statistics.loadFailures,
            statistics.byteCount, statistics.count,
        ]
        #expect(counts.allSatisfy { $0 == 0 })
        (statistics.hits, statistics.misses) = (hits, misses)
        #expect(statistics.hitRatio == ratio)
    }

    // MARK: - The allocator

    @Test func `pages can be given back to glibc and jemalloc, where these own the heap`() {
        let kinds: [HeapAllocator.Kind] = [.glibc, .jemalloc, .mimalloc, .tcmalloc, .unknown]
        for kind in kinds {
            #expect(HeapAllocator(kind, .owned).canGiveBack == (kind == .glibc || kind == .jemalloc), "\(kind)")
            #expect(!HeapAllocator(kind, .notOwned).canGiveBack && !HeapAllocator(kind, .split).canGiveBack, "\(kind)")
        }
    }

    @Test(arguments: [(1024, 1024, GiveBackDepth.full), (1023, 1023, .light), (1023, 1024, .full)])
    func `a walk over the heap follows a release of a mebibyte, or of less than asked for`(
        released: Int, asked: Int, depth: GiveBackDepth
    ) {
        let heap = GiveBackTests.Heap()
        var giveBack = HeapGiveBack(heap)
        GiveBackTests.pass(&giveBack, released: .kibibytes(released), asked: .kibibytes(asked))
        #expect(heap.asked == [depth])
    }

    @Test(arguments: [(20, 0), (21, 1)])
    func `a stall of up to twenty milliseconds needs no guard`(stall: Int, reported: Int) {
        var giveBack = HeapGiveBack(GiveBackTests.Heap(stall: .milliseconds(stall)))
        let took = GiveBackTests.pass(&giveBack, released: .mebibytes(64), asked: .mebibytes(64))
        #expect(took == .milliseconds(reported))
    }

    @Test(arguments: [(4095, 1), (4096, 2)])
    func `holes of a page are worth another walk after one that freed nothing`(hole: Int, walks: Int) {
        let heap = GiveBackTests.Heap(hole: .bytes(hole))
        var giveBack = HeapGiveBack(heap)
        for _ in 0..<2 { GiveBackTests.pass(&giveBack, released: .mebibytes(64), asked: .mebibytes(64)) }
        #expect(heap.asked.count == walks)
    }
}
