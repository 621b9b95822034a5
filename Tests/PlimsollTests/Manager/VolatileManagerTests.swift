import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Volatile memory under a running manager.
@Suite(.serialized, .timeLimit(.minutes(5)), .needsLinux) struct VolatileManagerTests {
    /// Pushes a reading of a group of `limit` MiB. The usage is the sum of `others`, the volatile memory and the page
    /// cache.
    static func push(
        _ running: RunningManager, others: Int, volatile: Int, cache: Int = 0, lazyFreed: Int? = nil, of limit: Int = 1024,
        after step: Duration = .zero
    ) async {
        let usage = ByteCount.mebibytes(others + volatile + cache)
        let reading = PressureReading(
            at: .zero, boundary: .maximum, limit: .mebibytes(limit), usage: usage, workingSet: .mebibytes(others),
            available: .mebibytes(limit - others), resident: usage, lazyFreed: lazyFreed.map { .mebibytes($0) })
        await running.turn(after: step) { running.source.push(reading) }
    }

    /// Waits until `condition` holds and the keeper has ended its work: a reading that was taken before that end requests
    /// no more work.
    private static func untilKept(
        _ running: RunningManager, sourceLocation: SourceLocation = #_sourceLocation, _ condition: () -> Bool
    ) async {
        let keeper = running.manager.parts.keeper, later = PressureReading(at: .seconds(3600))
        await running.until({ condition() && keeper.isFree(for: later) }, sourceLocation: sourceLocation)
    }

    /// The margin of the group: 3 % of 1 GiB.
    static let margin = VolatileRoom.margin(below: .gibibytes(1))

    @Test func `a purgeable may fill the group up to the margin, and the level stays normal`() async throws {
        try await RunningManager.run { running in
            let holder = FakeVolatile()
            running.manager.register(holder)
            await Self.push(running, others: 400, volatile: 0)
            var held = 0
            // Each wakeup brings another reading, and each reading halves the remaining room.
            for _ in 0..<20 {
                _ = holder.fill()
                held = holder.heldBytes >> 20
                await Self.push(running, others: 400, volatile: held, after: .milliseconds(100))
            }
            #expect((588...594).contains(held), "624 less the margin of 30.7, to within a step")
            #expect(running.manager.level == .normal && running.manager.reports.isEmpty)
        }
    }

    @Test func `the margin is kept by releases, with a report and without an event`() async throws {
        try await RunningManager.run { running in
            let holder = FakeVolatile(mebibytes: 600), notified = Counter()
            running.manager.register(holder)
            running.manager.observe(from: .normal) { _ in notified.add(1) }
            await Self.push(running, others: 400, volatile: 600)
            let margin = Self.margin
            #expect(holder.seen.calls == 0, "free is 24 of 30.7")
            await Self.push(running, others: 415, volatile: 600, after: .seconds(1))
            await running.until { holder.seen.calls == 1 }
            #expect(holder.seen.asked == (margin - .mebibytes(9)).bytes)
            await Self.push(running, others: 415, volatile: 578, after: .seconds(1))
            await running.until { running.manager.reports.contains { $0.action == .makeRoom } }
            let report = try #require(running.manager.reports.first)
            #expect(report.releasedVolatile == report.asked && report.released == .zero && report.level == .normal)
            #expect(notified.value == 0 && holder.seen.calls == 1)
        }
    }

    @Test func `purgeables with nothing to release are left alone for a while`() async throws {
        try await RunningManager.run(policy: .patient) { running in
            let calls = Counter()
            let holder = StuckVolatile { calls.add(1) }
            running.manager.register(holder)
            for _ in 0..<8 { await Self.push(running, others: 500, volatile: 523, after: .seconds(1)) }
            await Self.untilKept(running) { calls.value == 1 }
            #expect(calls.value == 1)
            await Self.push(running, others: 500, volatile: 523, after: .seconds(11))
            await running.until { calls.value == 2 }
        }
    }

    @Test func `C79 a shortage asks volatile memory first, and the others for the whole amount`() async throws {
        try await RunningManager.run { running in
            let order = Mutex<[String]>([])
            let holder = FakeVolatile(mebibytes: 160) { order.withLock { $0.append("volatile") } }
            running.manager.register("heap", rebuildCost: .trivial, byteCount: { 300 << 20 }) { (target: Int) in
                order.withLock { $0.append("heap") }
                return target
            }
            running.manager.register(holder)
            var reports = running.comingReports.makeAsyncIterator()
            // 164 MiB are available, 4 of them free.
            await Self.push(running, others: 860, volatile: 160)
            var report = try #require(await reports.next())
            while report.action != .release { report = try #require(await reports.next()) }
            #expect(order.withLock { $0 } == ["volatile", "volatile", "heap"], "in strides of 128 MiB")
            #expect(report.asked > .mebibytes(100) && report.released >= report.asked, "the heap gives all of it")
            #expect(report.releasedVolatile >= report.asked && report.releasedVolatile <= report.asked + Self.margin)
            #expect("\(report)".contains("volatile"))
        }
    }

    @Test func `volatile memory is not asked where enough is free`() async throws {
        try await RunningManager.run { running in
            let holder = FakeVolatile(mebibytes: 10)
            running.manager.register(holder)
            running.manager.register("heap", byteCount: { 300 << 20 }) { (target: Int) in target }
            var reports = running.comingReports.makeAsyncIterator()
            await Self.push(running, others: 840, volatile: 10)
            let report = try #require(await reports.next())
            #expect(report.action == .release && report.releasedVolatile == .zero && report.released >= report.asked && holder.seen.calls == 0)
        }
    }

    @Test func `a purgeable that fell back to ordinary memory counts, before the heap`() async throws {
        try await RunningManager.run { running in
            let holder = FakeVolatile(mebibytes: 600, pinned: 600), heap = Counter()
            running.manager.register(holder)
            running.manager.register("heap", rebuildCost: .trivial, byteCount: { 300 << 20 }) { (target: Int) in
                heap.add(1)
                return target
            }
            var reports = running.comingReports.makeAsyncIterator()
            await Self.push(running, others: 860, volatile: 0)
            let report = try #require(await reports.next())
            #expect(report.released == report.asked && report.releasedVolatile == .zero && heap.value == 0)
            #expect(holder.seen.asked == report.asked.bytes)
        }
    }

    @Test func `C80 precious volatile memory is asked only when critical`() async throws {
        try await RunningManager.run(policy: .patient) { running in
            let precious = FakeVolatile("precious", .precious, mebibytes: 40), cheap = FakeVolatile("cheap", mebibytes: 20)
            running.manager.register(precious)
            running.manager.register(cheap)
            var reports = running.comingReports.makeAsyncIterator()
            await Self.push(running, others: 850, volatile: 60)
            _ = await reports.next()
            #expect(cheap.heldBytes == .zero && precious.seen.calls == 0)
            // In this turn the loop records the end of the pass, before time advances.
            await Self.push(running, others: 850, volatile: 60)
            await Self.push(running, others: 980, volatile: 40, after: .seconds(60))
            while let report = await reports.next(), report.action != .release {}
            #expect(precious.heldBytes == .zero)
        }
    }

    @Test func `a rehearsal releases a share of volatile memory`() async throws {
        try await RunningManager.run { running in
            let holder = FakeVolatile(mebibytes: 80)
            running.manager.register(holder)
            var reports = running.comingReports.makeAsyncIterator()
            await Self.push(running, others: 400, volatile: 80)
            running.manager.simulate(.warning, for: .seconds(60))
            let report = try #require(await reports.next())
            #expect(report.releasedVolatile >= .mebibytes(10) && report.isSimulated)
        }
    }

    @Test func `a pass releases in strides, and stops when the need is gone`() async throws {
        let seen = Mutex(ByteCount.zero)
        try await RunningManager.run(onTurn: { reading, _ in seen.withLock { $0 = reading.available ?? .zero } }) { running in
            let asked = Mutex<[Int]>([])
            let source = running.source
            running.manager.register("heap", byteCount: { 2 << 30 }) { (target: Int) in
                // The limit is raised during the pass.
                asked.withLock { $0.append(target) }
                if asked.withLock({ $0.count }) == 2 {
                    source.push(usage: .mebibytes(3000), limit: .gibibytes(16))
                    blockUntil { seen.withLock { $0 } >= .gibibytes(10) }
                }
                return target
            }
            var reports = running.comingReports.makeAsyncIterator()
            running.source.push(usage: .mebibytes(3900), limit: .gibibytes(4))
            var report = try #require(await reports.next())
            while report.action != .release { report = try #require(await reports.next()) }
            #expect(asked.withLock { $0 } == [Int](repeating: 128 << 20, count: 2))
            #expect(report.asked > .mebibytes(800) && report.released == .mebibytes(256))
        }
    }

    @Test func `pages reclaimed by the kernel are noticed by the kernel's counter, and reported as taken`() async throws {
        try await RunningManager.run { running in
            let holder = FakeVolatile(mebibytes: 100)
            running.manager.register(holder)
            for _ in 0..<5 { await Self.push(running, others: 400, volatile: 100, lazyFreed: 7, after: .seconds(1)) }
            #expect(holder.seen.checks == 0, "no evidence, no check")
            holder.state.withLock { $0.dropped = 30 << 20 }
            await Self.push(running, others: 400, volatile: 100, lazyFreed: 40, after: .seconds(1))
            await running.until { holder.seen.checks == 1 }
            await Self.push(running, others: 400, volatile: 70, lazyFreed: 40, after: .seconds(1))
            await running.until { running.manager.reports.count == 1 }
            let report = try #require(running.manager.reports.first)
            #expect(report.action == .noticeDrops && report.taken == .mebibytes(30) && "\(report)".contains("the kernel reclaimed 30 MiB"))
            #expect(holder.heldBytes == 70 << 20 && running.manager.parts.volatileMeter.heldBytes == .mebibytes(70))
        }
    }

    @Test func `purgeables are asked for idle memory every ten seconds, and an empty one never`() async throws {
        try await RunningManager.run(policy: .patient) { running in
            let holder = FakeVolatile(mebibytes: 100), empty = FakeVolatile("empty")
            running.manager.register(empty)
            for _ in 0..<12 { await Self.push(running, others: 400, volatile: 0, after: .seconds(1)) }
            #expect(empty.seen.idleCalls == 0)
            running.manager.register(holder)
            for calls in 1...3 {
                await Self.untilKept(running) { holder.seen.idleCalls == calls }
                for _ in 0..<10 {
                    #expect(holder.seen.idleCalls == calls)
                    await Self.push(running, others: 400, volatile: 100, after: .seconds(1))
                }
            }
        }
    }

    @Test func `a dry run bounds no purgeable and asks for nothing`() async throws {
        try await RunningManager.run(policy: .init(isDryRun: true)) { running in
            let holder = FakeVolatile(mebibytes: 600)
            running.manager.register(holder)
            for _ in 0..<12 { await Self.push(running, others: 424, volatile: 600, lazyFreed: 1, after: .seconds(1)) }
            #expect(holder.fill(atMost: 100) == 100 && holder.seen.calls == 0 && holder.seen.idleCalls == 0)
        }
    }

    @Test func `volatile memory does not grow while memory is short, and is unbounded after the manager's end`() async throws {
        let holder = FakeVolatile(mebibytes: 10)
        try await RunningManager.run { running in
            running.manager.register(holder)
            await Self.push(running, others: 850, volatile: 10)
            #expect(running.manager.level == .warning && holder.fill() == 0)
        }
        #expect(holder.fill(atMost: 1000) == 1000)
    }
}

/// A purgeable that holds much and releases nothing, because all of its memory is in use.
private final class StuckVolatile: VolatilePurgeable {
    let name = "stuck"
    let rebuildCost = RebuildCost.cheap
    private let onRelease: @Sendable () -> Void
    init(onRelease: @escaping @Sendable () -> Void) { self.onRelease = onRelease }
    var heldBytes: Int { 523 << 20 }
    var volatileBytes: Int { 0 }
    func attach(volatile meter: ChargeMeter) { meter.takeAnyway(523 << 20) }
    func noticeDrops() -> Int { 0 }
    func giveBackIdle() {}
    func release(_ target: Int) -> Int {
        onRelease()
        return 0
    }
}
