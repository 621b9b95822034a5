import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// The bytes that a pass asks of each purgeable.
@Suite(.timeLimit(.minutes(5))) struct ReleasePassTests {
    private let meter = ChargeMeter {}, volatileMeter = ChargeMeter {}, registry = PurgeableRegistry()
    private let time = ManualClock().timekeeper

    private func purger(isNeedGone: Bool = false, isAwaited: Bool = false) -> Purger {
        let purger = Purger(registry: registry, source: ScriptedPressureSource(), time: time)
        purger.publish(isNeedGone: isNeedGone)
        let report = ActionReport(eventID: 1, action: .release, level: .warning, evidence: [], began: .zero)
        if isAwaited { purger.post(.init(report: report, includesPrecious: false)) }
        return purger
    }

    private func add(_ holder: any Purgeable, share: Int? = nil) -> PurgeableRegistry.Entry {
        let entry = PurgeableRegistry.Entry(holder, meter: meter, volatileMeter: volatileMeter)
        entry.setShare(share)
        registry.add(entry)
        return entry
    }

    /// Asks all registered purgeables for `target` bytes of ordinary memory, or of any memory.
    private func ask(
        _ target: ByteCount, forAnyMemory: Bool = false, sparesSmall: Bool = false, isUpkeep: Bool = false,
        by purger: Purger? = nil
    ) -> (released: ByteCount, end: String) {
        let registry = registry, time = time, purger = purger ?? self.purger()
        return inTurn { turn in
            let pass = ReleasePass(
                turn: turn, time: time, purger: purger, isUpkeep: isUpkeep, sparesSmall: sparesSmall)
            let entries = registry.snapshot
            var released = ByteCount.zero
            let end = pass.ask(
                entries, entries.indices, for: forAnyMemory ? .all : .ordinary, includesPrecious: true, target: target,
                released: &released)
            return (released, "\(end)")
        }
    }

    /// Asks the registered purgeables that share memory for `target` bytes, of which `before` are released already.
    private func askShared(
        _ target: ByteCount, before: ByteCount = .zero, includesPrecious: Bool = true, sparesSmall: Bool = false
    ) -> ByteCount {
        let registry = registry, time = time, purger = purger()
        return inTurn { turn in
            let pass = ReleasePass(
                turn: turn, time: time, purger: purger, isUpkeep: false, sparesSmall: sparesSmall)
            let entries = registry.snapshot
            var released = before
            _ = pass.askShared(
                entries, entries.indices, for: .ordinary, includesPrecious: includesPrecious, target: target,
                released: &released)
            return released
        }
    }

    // MARK: - Small classes

    @Test(
        arguments: [
            (.expensive, [99], false), (.expensive, [100], true), (.expensive, [50, 50], true),
            (.expensive, [50, 49], false), (.precious, [99], false), (.cheap, [1], true),
        ] as [(RebuildCost, [Int], Bool)])
    func `a class that is expensive to rebuild and holds less than a quarter of the target is spared`(
        cost: RebuildCost, held: [Int], isAsked: Bool
    ) {
        let holders = held.map { NotedHolder(held: $0, cost) }
        for holder in holders { _ = add(holder) }
        let spared = ask(400, sparesSmall: true)
        #expect((spared.released > .zero) == isAsked && spared.end == "done")
        #expect(holders.contains { !$0.asked.isEmpty } == isAsked)
        let rest = ask(400)
        #expect(spared.released + rest.released == ByteCount(held.reduce(0, +)), "asked where nothing is spared")
    }

    @Test func `a small class is not spared where volatile and ordinary memory are asked for together`() {
        let holder = NotedHolder(held: 99, .expensive)
        _ = add(holder)
        #expect(ask(400, forAnyMemory: true, sparesSmall: true).released == 99)
    }

    // MARK: - Numbers of bytes

    @Test(arguments: [(1, 1, [1]), (10, 1, [1]), (10, 400, [10]), (0, 10, []), (-5, 10, [])] as [(Int, Int, [Int])])
    func `a purgeable is asked for the bytes that are wanted, as far as there are any`(
        held: Int, target: Int, asked: [Int]
    ) {
        let holder = NotedHolder(held: held)
        _ = add(holder)
        let result = ask(ByteCount(target))
        #expect(holder.asked == asked && result.released == ByteCount(asked.reduce(0, +)))
    }

    @Test func `similar purgeables are asked in proportion to what they hold, rounded up`() {
        let holders = [20, 60, 7].map { NotedHolder(held: $0) }
        for holder in holders.dropLast() { _ = add(holder) }
        let first = ask(33)
        #expect(first.released == 33 && holders.map(\.asked) == [[9], [24], []])
        _ = add(holders[2])
        // 11, 36 and 7 bytes are left.
        let second = ask(27)
        #expect(second.released == 27 && holders.map { $0.asked.last } == [6, 18, 3])
    }

    @Test(
        arguments: [
            (100, 10, 60, 60), (100, 10, 100, 100), (100, 10, 200, 100), (100, 10, 0, 0), (100, 10, -7, 0),
        ])
    func `a purgeable may release more than asked for, and no more than it held`(
        held: Int, target: Int, answer: Int, released: Int
    ) {
        let holder = NotedHolder(held: held, answer: { _, _ in answer })
        _ = add(holder)
        #expect(ask(ByteCount(target)).released == ByteCount(released) && holder.asked == [target])
    }

    @Test func `a purgeable that releases all at the first stride is asked once`() {
        let holder = NotedHolder(held: 1 << 30, answer: { _, _ in 300 << 20 })
        _ = add(holder)
        #expect(ask(.mebibytes(300)).released == .mebibytes(300) && holder.asked == [128 << 20])
    }

    @Test func `what was released in earlier strides does not count twice`() {
        let holder = NotedHolder(held: 200 << 20, answer: { asked, call in call == 1 ? asked : .max })
        _ = add(holder)
        #expect(ask(.mebibytes(200)).released == .mebibytes(200) && holder.asked == [128 << 20, 72 << 20])
    }

    @Test func `a purgeable that leaves while it is counted is asked for nothing, and the others for everything`() {
        let gates = Log<CallGate>()
        let gone = NotedHolder("gone", held: 100, onCount: { for gate in gates.all { gate.close() } })
        let here = NotedHolder("here", held: 150)
        let entry = add(gone), other = add(here)
        gates.add(entry.gate)
        #expect(ask(100).released == 100 && gone.asked.isEmpty && here.asked == [100])
        // From the second pass on, nothing of the one that has left is on offer.
        #expect(ask(10).released == 10 && here.asked == [100, 10])
        #expect(entry.offered.load(ordering: .relaxed) == 0)
        #expect(other.held.load(ordering: .relaxed) == 50)
    }

    @Test func `a claim of more than a pebibyte counts as a pebibyte`() {
        let entry = add(NotedHolder(held: .max, answer: { _, _ in 0 }))
        _ = ask(1)
        #expect(entry.held.load(ordering: .relaxed) == 1 << 50)
    }

    // MARK: - Strides

    @Test(
        arguments: [
            (isUpkeep: false, isNeedGone: true, isAwaited: false, strides: 1), (false, false, true, 2),
            (true, true, false, 2), (true, false, true, 1),
        ])
    func `a pass stops when its memory is no longer needed, upkeep when a pass waits`(
        isUpkeep: Bool, isNeedGone: Bool, isAwaited: Bool, strides: Int
    ) {
        let holder = NotedHolder(held: 300 << 20)
        _ = add(holder)
        let purger = purger(isNeedGone: isNeedGone, isAwaited: isAwaited)
        let result = ask(.mebibytes(256), isUpkeep: isUpkeep, by: purger)
        #expect(holder.asked == Array(repeating: 128 << 20, count: strides))
        #expect(result.end == (strides == 1 ? "noLongerNeeded" : "done"))
    }

    // MARK: - Shares

    /// A cache with the held bytes and the share in bytes.
    private func cache(_ held: Int, share: Int, _ cost: RebuildCost = .cheap) -> NotedHolder {
        let holder = NotedHolder(held: held, cost, isMetered: true)
        _ = add(holder, share: share)
        return holder
    }

    @Test(
        arguments: [
            ([300, 100], [100, 100], 0, 100, [[80], []]), ([300, 100], [100, 100], 20, 120, [[80], []]),
            ([300, 200], [100, 100], 0, 60, [[50], []]), ([300, 200], [100, 100], 0, 240, [[150], [50]]),
            ([100, 100], [1, 99], 0, 60, [[50], []]),
        ] as [([Int], [Int], Int, Int, [[Int]])])
    func `the cache furthest above its share gives most, and both the part that they hold`(
        held: [Int], shares: [Int], before: Int, target: Int, asked: [[Int]]
    ) {
        let caches = zip(held, shares).map { cache($0, share: $1) }
        // A third cache without a share holds a fifth or a sixth of the memory on offer.
        let other = cache(held == [100, 100] ? 40 : 100, share: 0)
        let released = askShared(ByteCount(target), before: ByteCount(before))
        #expect(caches.map(\.asked) == asked && other.asked.isEmpty)
        #expect(released == ByteCount(before + asked.joined().reduce(0, +)))
    }

    @Test(arguments: [(100, 10, [10]), (1, 1, [1]), (1, 10, [1]), (100, 0, [])] as [(Int, Int, [Int])])
    func `a single cache with the least share gives what is wanted`(held: Int, target: Int, asked: [Int]) {
        let only = cache(held, share: 1)
        #expect(askShared(ByteCount(target)) == ByteCount(asked.reduce(0, +)) && only.asked == asked)
    }

    @Test(arguments: [(false, [100], []), (true, [50], [50])] as [(Bool, [Int], [Int])])
    func `precious caches that share memory are asked at the critical level only`(
        includesPrecious: Bool, cheap: [Int], precious: [Int]
    ) {
        let first = cache(200, share: 100), second = cache(200, share: 100, .precious)
        #expect(askShared(100, includesPrecious: includesPrecious) == 100)
        #expect(first.asked == cheap && second.asked == precious)
    }

    @Test(arguments: [(99, true), (100, false)], [RebuildCost.expensive, .precious])
    func `a small cache that is expensive to rebuild is spared, also if the cache shares memory`(
        size: (held: Int, isSpared: Bool), cost: RebuildCost
    ) {
        let (held, isSpared) = size
        let cheap = cache(200, share: 100), expensive = cache(held, share: 100, cost)
        let released = askShared(400, sparesSmall: true)
        #expect(cheap.asked == [200] && expensive.asked == (isSpared ? [] : [held]))
        #expect(released == ByteCount(isSpared ? 200 : 200 + held))
    }

    @Test func `a volatile cache that fell back to ordinary memory has no share of the heap`() {
        let heap = cache(300, share: 100), volatile = NotedVolatile(held: 100, isVolatile: false)
        _ = add(volatile, share: 100)
        #expect(askShared(100) == 75 && heap.asked == [75] && volatile.asked.isEmpty)
    }
}
