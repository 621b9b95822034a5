import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// The keeper of volatile memory, and the turns of the loop that request the keeper's work.
@Suite(.timeLimit(.minutes(5))) struct VolatileKeeperTests {
    /// A heap that notes each request, and takes 40 milliseconds to give pages back.
    private final class Heap: GiveBack {
        let requests = Log<String>()
        private let clock: ManualClock

        init(_ clock: ManualClock) { self.clock = clock }

        var canGiveBack: Bool { true }
        var expectedStall: Duration { .zero }
        func keepLess() { requests.add("keep less") }
        func giveBack(_ depth: GiveBackDepth) {
            clock.advance(by: .milliseconds(40))
            requests.add("give back \(depth)")
        }
        func meanHole() -> ByteCount? { nil }
    }

    private let clock = ManualClock(), source = FallingSource(), registry = PurgeableRegistry(), heap: Heap
    private let purger: Purger, keeper: VolatileKeeper

    init() {
        heap = Heap(clock)
        purger = Purger(registry: registry, source: source, time: clock.timekeeper)
        keeper = VolatileKeeper(
            registry: registry, purger: purger, source: source, time: clock.timekeeper, allocator: heap)
    }

    @discardableResult
    private func add(_ holder: NotedVolatile, share: Int? = nil) -> PurgeableRegistry.Entry {
        let entry = PurgeableRegistry.Entry(holder, meter: ChargeMeter {}, volatileMeter: ChargeMeter {})
        entry.setShare(share)
        registry.add(entry)
        return entry
    }

    private func reading(_ at: Duration) -> PressureReading { PressureReading(at: at) }

    private func request(_ change: (inout VolatileKeeper.Request) -> Void) -> VolatileKeeper.Request {
        var request = VolatileKeeper.Request()
        change(&request)
        return request
    }

    /// Carries out a request. Returns false if the keeper had nothing to do.
    @discardableResult
    private func work(_ change: (inout VolatileKeeper.Request) -> Void) -> Bool {
        let isPosted = keeper.post(request(change), for: reading(clock.timekeeper.elapsed())), goesOn = run()
        #expect(goesOn)
        return isPosted
    }

    private func run() -> Bool {
        let keeper = keeper
        return inTurn { keeper.run($0) }
    }

    // MARK: - Requests

    @Test func `a request for nothing is empty, and each single wish makes work`() {
        let isPosted = work { _ in }
        #expect(VolatileKeeper.Request().isEmpty && !isPosted)
        let excess = request { $0.excess = 1 }, notices = request { $0.noticesDrops = true }
        let idle = request { $0.givesBackIdle = true }, trims = request { $0.trimsHeap = true }
        #expect(!excess.isEmpty && !notices.isEmpty && !idle.isEmpty && !trims.isEmpty)
    }

    @Test func `the keeper is free again for readings after the work's end, and after it was abandoned`() {
        let holder = NotedVolatile(held: 100)
        add(holder)
        clock.freeze(for: .seconds(50))
        #expect(keeper.isFree(for: reading(.seconds(50))) && keeper.takeFindings() == nil)
        let isPosted = keeper.post(request { $0.excess = 10 }, for: reading(.seconds(50)))
        #expect(isPosted && !keeper.isFree(for: reading(.seconds(51))))
        keeper.abandoned()
        #expect(keeper.isFree(for: reading(.seconds(50))))
        let goesOn = run()
        #expect(goesOn && holder.asked.isEmpty && keeper.takeFindings() == nil, "an abandoned request is dropped")
        work { $0.excess = 10 }
        #expect(holder.asked == [10])
        #expect(!keeper.isFree(for: reading(.seconds(50))))
        #expect(keeper.isFree(for: reading(.seconds(50) + .nanoseconds(1))))
    }

    @Test(arguments: [(4, false), (5, true)])
    func `holders that release less than half are left alone for ten seconds`(released: Int, isAskedAgain: Bool) {
        add(NotedVolatile(held: 100, answer: { _ in released }))
        clock.freeze(for: .seconds(50))
        work { $0.excess = 10 }
        let early = keeper.post(request { $0.excess = 10 }, for: reading(.seconds(60) - .nanoseconds(1)))
        keeper.abandoned()
        let due = keeper.post(request { $0.excess = 10 }, for: reading(.seconds(60)))
        #expect(early == isAskedAgain && due)
    }

    // MARK: - Findings

    @Test func `findings are summed until they are taken, and the last measurement stays`() {
        let clock = clock
        let holder = NotedVolatile(
            held: 100 << 20, onCall: { if $0 == .release { clock.advance(by: .milliseconds(30)) } })
        add(holder)
        work { $0.excess = .mebibytes(10) }
        work { $0.excess = .mebibytes(20) }
        holder.notes.withLock { $0.dropped = [5 << 20] }
        work { $0.noticesDrops = true }
        let found = keeper.takeFindings()
        #expect(found?.asked == .mebibytes(30) && found?.released == .mebibytes(30) && found?.taken == .mebibytes(5))
        #expect(found?.fall == Footprint(resident: .mebibytes(20), usage: .mebibytes(40)))
        #expect(found?.after == Footprint(resident: .mebibytes(960), usage: .mebibytes(1920)))
        #expect(found?.took == .milliseconds(60) && keeper.takeFindings() == nil)
    }

    @Test func `the loop is woken when memory was released or found reclaimed`() {
        let holder = NotedVolatile(held: 100)
        add(holder)
        work { $0.noticesDrops = true }
        work { $0.givesBackIdle = true }
        #expect(source.wakes == 0 && holder.notes.withLock { $0.idleCalls } == 1)
        holder.notes.withLock { $0.dropped = [7] }
        work { $0.noticesDrops = true }
        #expect(source.wakes == 1)
        work { $0.excess = 10 }
        #expect(source.wakes == 2)
    }

    @Test(
        arguments: [(7, 7), (1, 1), (0, nil), (-5, nil), (.max, 1 << 50)] as [(Int, Int?)])
    func `pages found reclaimed are counted, up to a pebibyte`(found: Int, taken: Int?) {
        let holder = NotedVolatile(held: 100)
        add(holder)
        holder.notes.withLock { $0.dropped = [found] }
        work { $0.noticesDrops = true }
        #expect(keeper.takeFindings()?.taken.bytes == taken)
    }

    @Test func `a holder that has left is not checked`() {
        let holder = NotedVolatile(held: 100)
        let entry = add(holder)
        holder.notes.withLock { $0.dropped = [7] }
        entry.gate.close()
        work { $0.noticesDrops = true }
        #expect(keeper.takeFindings() == nil && holder.notes.withLock { $0.dropped } == [7])
    }

    // MARK: - Room

    @Test func `precious contents go last, also where shares decide, but they go`() {
        let cheap = NotedVolatile("cheap", held: 100 << 20)
        let precious = NotedVolatile("precious", held: 100 << 20, .precious)
        for holder in [cheap, precious] { add(holder, share: 40 << 20) }
        work { $0.excess = .mebibytes(20) }
        #expect(cheap.asked == [20 << 20] && precious.asked.isEmpty)
        work { $0.excess = .mebibytes(200) }
        #expect(cheap.asked == [20 << 20, 80 << 20] && precious.asked == [100 << 20])
    }

    @Test(arguments: [(false, 2), (true, 1)])
    func `making room goes on after the shortage, and gives way to a pass`(isAwaited: Bool, strides: Int) {
        let holder = NotedVolatile(held: 300 << 20)
        add(holder)
        purger.publish(isNeedGone: true)
        let report = ActionReport(eventID: 1, action: .release, level: .warning, evidence: [], began: .zero)
        if isAwaited { purger.post(.init(report: report, includesPrecious: false)) }
        work { $0.excess = .mebibytes(256) }
        #expect(holder.asked == Array(repeating: 128 << 20, count: strides))
    }

    // MARK: - The heap

    @Test func `a trim returns what large buffers leave, and its effect is taken once`() {
        #expect(keeper.canTrim && keeper.takeTrim() == nil)
        work { $0.trimsHeap = true }
        #expect(heap.requests.all == ["keep less", "give back full"])
        let trim = keeper.takeTrim()
        #expect(trim?.fall == .mebibytes(10) && trim?.took == .milliseconds(40) && keeper.takeTrim() == nil)
        #expect(source.wakes == 0 && keeper.takeFindings() == nil)
    }

    // MARK: - Threads

    @Test(arguments: [NotedVolatile.Call.release, .noticeDrops, .giveBackIdle])
    func `a thread that was replaced inside a call reports nothing`(call: NotedVolatile.Call) async {
        let blockade = Blockade(), goesOn = Log<Bool>(), keeper = keeper
        add(NotedVolatile("blocking", held: 100, onCall: { if $0 == call { blockade.wait() } }))
        let worker = Worker("keeps") { goesOn.add(keeper.run($0)) }
        worker.start()
        let wish = request { request in
            switch call {
            case .release: request.excess = 10
            case .noticeDrops: request.noticesDrops = true
            case .giveBackIdle: request.givesBackIdle = true
            }
        }
        let isPosted = keeper.post(wish, for: reading(.zero))
        worker.request()
        await until { blockade.count == 1 }
        #expect(isPosted && worker.replaceIfStuck(at: .seconds(5), budget: .seconds(5)) == "blocking")
        // The new thread runs at once, and finds no request.
        await until { goesOn.all == [true] }
        blockade.open()
        await until { goesOn.all.count == 2 }
        #expect(goesOn.all == [true, false] && keeper.takeFindings() == nil)
        #expect(!keeper.isFree(for: reading(.seconds(9))))
        worker.stop()
    }
}

/// A turn of the loop, for volatile memory.
@Suite(.timeLimit(.minutes(5))) struct VolatileResponseTests {
    private let clock = ManualClock(), source = FallingSource()

    private func manager() -> ResourceManager { ResourceManager(source: source, time: clock.timekeeper) }

    /// Returns parts whose heap can be trimmed, unlike that of the test bundle, which has a `malloc` of its own.
    private func parts(canTrim: Bool = true) -> ManagerParts {
        ManagerParts(
            source: source, policy: .standard, time: clock.timekeeper, requests: .process, exit: { _, _ in },
            allocator: GiveBackTests.Heap(canGiveBack: canTrim))
    }

    private func blank(_ at: Duration) -> ActionReport {
        ActionReport(eventID: 7, action: .release, level: .warning, evidence: .headroom, began: at)
    }

    @Test(
        arguments: [
            (1, 100 << 20, 10 << 20, .milliseconds(5000)), (1, 100 << 20, 2 << 20, .milliseconds(25_000)),
            (1, 0, 10 << 20, .milliseconds(10)), (1, 100 << 20, 1 << 20, nil), (0, 100 << 20, 10 << 20, nil),
        ] as [(Int, Int, Int, Duration?)])
    func `the next reading comes when half of the free memory is used up, at the earliest after 10 ms`(
        volatile: Int, free: Int, surge: Int, expected: Duration?
    ) {
        var response = VolatileResponse(parts: manager().parts)
        let reading = PressureReading(
            at: .zero, limit: .gibibytes(1), usage: .gibibytes(1) - ByteCount(free), volatile: ByteCount(volatile))
        response.respond(
            to: PressureAssessment(at: .zero, surge: ByteCount(surge)), reading, ramp: RefillRamp(), isPurging: false,
            blank: blank(.zero))
        if let expected {
            #expect(response.nextReadingWithin == expected)
        } else {
            #expect(response.nextReadingWithin > .seconds(600))
        }
    }

    @Test func `the heap is trimmed if caches that hold memory have no room, or volatile ones may take none`() {
        let rows: [(room: Int?, charged: Int, isShort: Bool, volatile: Int, isDue: Bool)] = [
            (0, 1, false, 0, true), (0, 0, false, 0, false), (1, 1, false, 0, false), (nil, 1, false, 0, false),
            (nil, 0, true, 1, true), (nil, 0, true, 0, false), (nil, 0, false, 1, false), (0, 0, false, 1, false),
        ]
        for row in rows {
            let parts = parts()
            var response = VolatileResponse(parts: parts), ramp = RefillRamp()
            if row.isShort { _ = ramp.allowance(room: .mebibytes(1), level: .warning, at: .zero) }
            let reading = PressureReading(
                at: .zero, limit: .gibibytes(1), usage: .mebibytes(100), charged: ByteCount(row.charged),
                volatile: ByteCount(row.volatile))
            response.respond(
                to: PressureAssessment(at: .zero, room: row.room.map { ByteCount($0) }), reading, ramp: ramp,
                isPurging: false, blank: blank(.zero))
            let isPosted = !parts.keeper.isFree(for: reading)
            #expect(isPosted == row.isDue, "\(row)")
        }
    }

    @Test func `the heap is not trimmed during a pass, above the normal level, in a burst, or if that has no effect`() {
        let rows: [(isPurging: Bool, level: PressureLevel, surge: Int, canTrim: Bool, isDue: Bool)] = [
            (false, .normal, (4 << 20) - 1, true, true), (true, .normal, 0, true, false),
            (false, .warning, 0, true, false), (false, .normal, 4 << 20, true, false),
            (false, .normal, 0, false, false),
        ]
        for row in rows {
            let parts = parts(canTrim: row.canTrim)
            var response = VolatileResponse(parts: parts)
            let reading = PressureReading(at: .zero, limit: .gibibytes(1), usage: .mebibytes(100), charged: 1)
            response.respond(
                to: PressureAssessment(at: .zero, level: row.level, room: .zero, surge: ByteCount(row.surge)), reading,
                ramp: RefillRamp(), isPurging: row.isPurging, blank: blank(.zero))
            let isPosted = !parts.keeper.isFree(for: reading)
            #expect(isPosted == row.isDue, "\(row)")
        }
    }

    @Test func `memory to be released is not taken again`() {
        let manager = manager(), meter = manager.parts.volatileMeter
        var response = VolatileResponse(parts: manager.parts)
        meter.takeAnyway(300 << 20)
        response.respond(
            to: PressureAssessment(at: .zero), VolatileRoomTests.reading(free: 7, file: 300, held: 300),
            ramp: RefillRamp(), isPurging: false, blank: blank(.zero))
        #expect(meter.room == 0)
        // The margin lacks 9 MiB.
        meter.give(10 << 20)
        #expect(meter.room == 1 << 20)
    }

    @Test(arguments: [(false, [9 << 20]), (true, [])] as [(Bool, [Int])])
    func `while a pass for a shortage is under way, no room is made besides`(isPurging: Bool, asked: [Int]) {
        let manager = manager(), holder = NotedVolatile(held: 300 << 20), keeper = manager.parts.keeper
        manager.register(holder)
        var response = VolatileResponse(parts: manager.parts)
        response.respond(
            to: PressureAssessment(at: .zero), VolatileRoomTests.reading(free: 7, file: 300, held: 300),
            ramp: RefillRamp(), isPurging: isPurging, blank: blank(.zero))
        let isInCharge = inTurn { keeper.run($0) }
        #expect(isInCharge && holder.asked == asked)
    }

    @Test func `findings are reported at most every five seconds, drops and releases apart`() {
        let manager = manager(), parts = manager.parts, clock = clock
        let holder = NotedVolatile(
            held: 100 << 20, onCall: { if $0 == .release { clock.advance(by: .milliseconds(30)) } })
        manager.register(holder)
        var response = VolatileResponse(parts: parts)
        func work(dropped: Int) {
            holder.notes.withLock { $0.dropped = [dropped] }
            var request = VolatileKeeper.Request()
            request.noticesDrops = true
            _ = parts.keeper.post(request, for: PressureReading(at: clock.timekeeper.elapsed()))
            _ = inTurn { parts.keeper.run($0) }
        }
        func reports(at: Duration) -> [ActionReport] {
            response.respond(
                to: PressureAssessment(at: at), PressureReading(at: at), ramp: RefillRamp(), isPurging: false,
                blank: blank(at))
            return parts.journal.reports
        }
        #expect(reports(at: .seconds(90)).isEmpty)
        work(dropped: 5)
        #expect(reports(at: .seconds(100)).map(\.taken) == [5])
        work(dropped: 6)
        #expect(reports(at: .seconds(100)).count == 1)
        #expect(reports(at: .milliseconds(104_999)).count == 1)
        #expect(reports(at: .seconds(105)).map(\.taken) == [5, 6])
        work(dropped: 7)
        #expect(reports(at: .seconds(104)).map(\.taken) == [5, 6, 7], "time has run backwards")
        #expect(parts.journal.reports.allSatisfy { $0.action == .noticeDrops && $0.eventID == 7 && $0.asked == .zero })

        var request = VolatileKeeper.Request()
        request.excess = .mebibytes(10)
        _ = parts.keeper.post(request, for: PressureReading(at: clock.timekeeper.elapsed()))
        _ = inTurn { parts.keeper.run($0) }
        let all = reports(at: .seconds(200)), made = all.last
        #expect(all.count == 4 && made?.action == .makeRoom && made?.taken == .zero && made?.asked == .mebibytes(10))
        #expect(made?.releasedVolatile == .mebibytes(10) && made?.released == .zero && made?.took == .milliseconds(30))
        #expect(made?.residentFall == .mebibytes(10) && made?.usageFall == .mebibytes(20))
        // The measurement after the release was the last one.
        #expect(made.map { $0.after.resident - .mebibytes(10) } == source.footprint().resident)
    }

    // MARK: - Before a pass for a shortage

    @Test func `an announcement asks for an eighth of volatile memory, at the critical level for half`() {
        let reading = PressureReading(at: .zero, volatile: .mebibytes(80))
        for (level, share) in [(PressureLevel.warning, 10), (.critical, 40)] {
            let assessment = PressureAssessment(at: .zero, level: level, evidence: .announced)
            let bytes = VolatileResponse.bytesToRelease(assessment, reading, asked: .mebibytes(1))
            #expect(bytes == .mebibytes(share))
        }
    }

    @Test func `a shortage asks for volatile memory that is not free already, and for the margin`() {
        let margin = VolatileRoom.margin(below: .gibibytes(1))
        let assessment = PressureAssessment(at: .zero, level: .warning, shortfall: .mebibytes(50), evidence: .headroom)
        func bytes(free: Int, inMachine: Int? = nil) -> ByteCount {
            let machine = inMachine.map { PressureReading.IdleMemory(total: .gibibytes(8), free: .mebibytes($0)) }
            let reading = VolatileRoomTests.reading(limit: 1024, free: free, held: 100, machine: machine)
            return VolatileResponse.bytesToRelease(assessment, reading, asked: .mebibytes(60))
        }
        #expect(bytes(free: 20) == .mebibytes(40) + margin)
        #expect(bytes(free: 20, inMachine: 5) == .mebibytes(55) + margin)
        #expect(bytes(free: 20, inMachine: 90) == .mebibytes(40) + margin)
        #expect(bytes(free: 500) == .zero)
    }
}
