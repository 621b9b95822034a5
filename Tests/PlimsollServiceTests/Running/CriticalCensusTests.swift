import Logging
import Plimsoll
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import PlimsollHeap
@testable import PlimsollService

/// A census of the heap when memory becomes critical.
@Suite(.timeLimit(.minutes(5))) struct CriticalCensusTests {
    /// A census, a clock, the log, and the records.
    private final class Fixture: TurnRecorder {
        let manager = ResourceManager(source: ScriptedPressureSource()), recorded = Mutex<[RecordedCensus.Row]>([])
        let book = LogBook(), taken = Counter(), now = Mutex(Duration.zero), failure = Mutex<HeapCensusError?>(nil)
        let mayStart = Mutex(true)

        var census: CriticalCensus {
            CriticalCensus(
                manager, ManagerLog(book.logger, rest: .zero),
                take: { [self] in
                    defer { taken.add(1) }
                    if let failure = failure.withLock({ $0 }) { throw failure }
                    let row = HeapCensus.Row(name: "Shop.Order", count: 3, bytes: 3 << 20, ownedBlocks: 1, ownedBytes: 1 << 20)
                    return HeapCensus(
                        way: .chunks, rows: [row], namedBytes: 3 << 20, ownedBytes: 1 << 20, unnamedBytes: 0, freeBytes: 0, lostBytes: 0,
                        processorSeconds: 0.01)
                },
                clock: { [self] in now.withLock { $0 } },
                startThread: { [self] name, body in mayStart.withLock { $0 } && Thread.start(name, body) })
        }

        init() { manager.record(in: self) }
        func record(_ turn: RecordedTurn) {}
        func record(_ census: RecordedCensus) { recorded.withLock { $0 = census.rows } }
        func ended(_ end: RecordedEnd) {}
    }

    @Test func `the largest types are logged, once in ten minutes`() async {
        let fixture = Fixture(), census = fixture.census
        census.begin(room: 64 << 20)
        await until("the census") { !fixture.book.entries.isEmpty }
        let entry = fixture.book.entries.first
        #expect(entry?.level == .warning && entry?.message == "counted the heap at critical")
        #expect(entry?["types"] == "4 MiB in 3 of Shop.Order" && entry?["named"] == "100 %")
        await until("the record") { fixture.recorded.withLock { $0 } == [.init(name: "Shop.Order", count: 3, bytes: 4 << 20)] }
        fixture.now.withLock { $0 = .seconds(599) }
        census.begin(room: 64 << 20)
        fixture.now.withLock { $0 = .seconds(600) }
        census.begin(room: nil)
        await until("the second census") { fixture.book.entries.count == 2 }
        #expect(fixture.taken.value == 2)
    }

    @Test func `without room for a census none is taken, and the next attempt may follow at once`() async {
        let fixture = Fixture(), census = fixture.census
        census.begin(room: CriticalCensus.headroom.bytes - 1)
        census.begin(room: -5)
        #expect(fixture.book.entries.map(\.message) == Array(repeating: "left out a census of the heap at critical", count: 2))
        #expect(fixture.book.entries.last?["reason"]?.hasPrefix("0 B are available") == true)
        census.begin(room: CriticalCensus.headroom.bytes)
        await until("the census") { fixture.book.entries.count == 3 }
        #expect(fixture.taken.value == 1)
    }

    @Test func `two episodes at the same moment take one census`() async {
        let fixture = Fixture(), census = fixture.census
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<64 { group.addTask { census.begin(room: nil) } }
        }
        await until("the census") { !fixture.book.entries.isEmpty }
        fixture.now.withLock { $0 = .seconds(600) }
        census.begin(room: nil)
        await until("the second census") { fixture.taken.value >= 2 && fixture.book.entries.count >= 2 }
        #expect(fixture.taken.value == 2)
    }

    @Test func `a census whose thread cannot be started does not count, and the next attempt may follow at once`() async {
        let fixture = Fixture(), census = fixture.census
        fixture.mayStart.withLock { $0 = false }
        census.begin(room: nil)
        #expect(fixture.book.entries.map { $0["reason"] } == ["no thread can be started"])
        fixture.mayStart.withLock { $0 = true }
        census.begin(room: nil)
        await until("the census") { fixture.book.entries.count == 2 }
        #expect(fixture.taken.value == 1)
    }

    @Test func `a census that fails is logged with the reason`() async {
        let fixture = Fixture()
        fixture.failure.withLock { $0 = HeapCensusError("cannot take a census because of a test") }
        fixture.census.begin(room: nil)
        await until("the answer") { !fixture.book.entries.isEmpty }
        #expect(fixture.book.entries.first?.level == .info)
        #expect(fixture.book.entries.first?["reason"] == "cannot take a census because of a test")
    }

    @Test(arguments: [true, false])
    func `a service counts its heap at critical if the settings say so`(counts: Bool) async throws {
        let source = ScriptedPressureSource(), book = LogBook()
        let settings = try ServiceSettings(environment: counts ? ["PLIMSOLL_HEAP_AT_CRITICAL": "true"] : [:])
        #expect(settings.countsHeapAtCritical == counts)
        let service = ResourceService(ResourceManager(source: source), settings: settings, logger: book.logger)
        let census = { book.entries.contains { $0.message == "counted the heap at critical" || $0.message == "cannot take a census of the heap" } }
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await service.run() }
            source.push(usage: .gibibytes(8) - .mebibytes(16), limit: .gibibytes(8))
            await until("critical") { service.manager.level == .critical }
            if counts {
                await until("the census") { census() }
            } else {
                await until("the log") { book.entries.contains { $0.message == "memory level became critical" } }
                #expect(!census())
            }
            group.cancelAll()
            try await group.waitForAll()
        }
    }
}
