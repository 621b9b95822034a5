import CAllocationCounter
import CSystemCallKiller
import Foundation
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle
@testable import PlimsollLinux

/// The black box of a running manager.
@Suite(.serialized, .timeLimit(.minutes(5))) struct BlackBoxTests {
    let directory = TemporaryDirectory()
    private var path: String { directory.path + "/plimsoll.box" }

    /// Runs a manager whose record is in `memory`.
    private func record(
        in memory: BoxMemory, _ body: @Sendable @escaping (ResourceManager, ScriptedPressureSource, ManualClock) async -> Void
    ) async throws {
        let source = ScriptedPressureSource(), clock = ManualClock()
        let manager = ResourceManager(source: source, time: clock.timekeeper)
        manager.record(in: BoxRecorder(memory.start, of: memory, writer: BoxMemory.writer))
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await manager.run() }
            await source.waitUntilIdle()
            await body(manager, source, clock)
            group.cancelAll()
            try await group.waitForAll()
        }
    }

    @Test func `turns, reports, purgeables and a clean end are recorded`() async throws {
        let memory = BoxMemory()
        try await record(in: memory) { manager, source, clock in
            manager.register("thumbnails", byteCount: { 30 << 20 }, release: { _ in 0 })
            let cache = PurgeableCache<Int, [UInt8]>("pages") { _, bytes in bytes.count }
            for key in 0..<16 { cache.insert([UInt8](repeating: 1, count: 1 << 20), forKey: key) }
            manager.register(cache)
            _ = manager.status
            for second in 1...12 {
                await source.whileIdle {
                    clock.advance(by: .seconds(1))
                    source.push(usage: .mebibytes(20 * second), limit: .mebibytes(256))
                }
                await source.waitUntilIdle()
            }
            await until { manager.reports.contains { $0.action == .release } }
            manager.record(heap: [RecordedCensus.Row(name: "Shop.Order", count: 3, bytes: 96)])
            await source.whileIdle {
                clock.advance(by: .milliseconds(300))
                source.push(usage: .mebibytes(250), limit: .mebibytes(256))
            }
            await source.waitUntilIdle()
        }
        let contents = try memory.contents()
        #expect(contents.end == .shutdown)
        let usages = contents.samples.map(\.usage)
        #expect((1...12).allSatisfy { usages.contains(20 * $0 << 20) } && usages.last == 250 << 20)
        #expect(contents.samples.last?.level == .critical && contents.samples.first?.level == .normal)
        #expect(contents.reports.contains { $0.severity == 1 && $0.asked > 0 })
        let table = try #require(contents.tables.last)
        #expect(table.rows.first { $0.name == "thumbnails" }?.bytes == 30 << 20)
        #expect(contents.tables.contains { $0.rows.contains { $0.name == "pages" && $0.bytes >= 16 << 20 } })
        let last = try #require(contents.samples.last)
        #expect(contents.census?.rows == [.init(name: "Shop.Order", count: 3, bytes: 96)] && contents.census?.at == last.at - .milliseconds(300))
    }

    @Test func `the purgeables with the most bytes are listed if there are too many`() async throws {
        let memory = BoxMemory()
        try await record(in: memory) { manager, source, clock in
            for number in 1...50 { manager.register("\(number)", byteCount: { number << 20 }, release: { _ in 0 }) }
            _ = manager.status
            await source.whileIdle {
                clock.advance(by: .seconds(6))
                source.push(usage: .mebibytes(20), limit: .mebibytes(256))
            }
            await source.waitUntilIdle()
        }
        let names = try #require(try memory.contents().tables.last).rows.compactMap { Int($0.name) }.sorted()
        #expect(names == Array(50 - BoxLayout.rows + 1...50))
    }

    @Test(.needs(allocation_count_works(), "a sanitizer is in front of malloc"))
    func `T27 recording a turn allocates nothing`() {
        let registry = BudgetRegistry(), memory = BoxMemory()
        let manager = ResourceManager(source: ScriptedPressureSource(), time: .running, requests: registry)
        let recorder = BoxRecorder(memory.start, of: memory, writer: BoxMemory.writer)
        let requests = (0..<40).map { MemoryBudget(name: "POST /a route of more than fifteen bytes/\($0 % 3)", registry: registry) }
        for request in requests { request.charge(.mebibytes(2)) }
        defer { for request in requests { request.end() } }
        let cache = PurgeableCache<Int, [UInt8]>("a cache with a name of more than fifteen bytes") { _, bytes in bytes.count }
        manager.register(cache)
        manager.register("thumbnails of more than fifteen bytes", byteCount: { 1 }, release: { _ in 0 })
        var report = ActionReport(eventID: 1, action: .suspend, level: .warning, evidence: [], began: .zero)
        report.outcome = .refused("there is no supervisor that could suspend")
        for _ in 0..<300 { manager.parts.report(report) }
        func record(_ turns: Range<Int>) {
            for turn in turns {
                let reading = PressureReading(
                    at: .milliseconds(turn * 100), limit: .mebibytes(256), usage: .mebibytes(turn % 256))
                recorder.record(RecordedTurn(reading, PressureAssessment(at: reading.at), manager.parts))
            }
        }
        record(0..<100)
        let before = allocation_count()
        record(100..<3000)
        #expect(allocation_count() - before == 0)
    }

    @Test func `only the larger requests are listed, by name`() throws {
        let registry = BudgetRegistry(), memory = BoxMemory()
        let manager = ResourceManager(source: ScriptedPressureSource(), time: .running, requests: registry)
        let recorder = BoxRecorder(memory.start, of: memory, writer: BoxMemory.writer)
        let requests = [("POST /import", 40), ("GET /", 1), ("POST /import", 30), ("GET /report", 2)].map { name, size in
            let budget = MemoryBudget(name: name, registry: registry)
            budget.charge(.mebibytes(size))
            return budget
        }
        defer { for request in requests { request.end() } }
        // A purgeable with the same name is another holder.
        manager.register("POST /import", byteCount: { 5 << 20 }, release: { _ in 0 })
        _ = manager.status
        let reading = PressureReading(at: .seconds(1), limit: .mebibytes(256), usage: .mebibytes(100))
        recorder.record(RecordedTurn(reading, PressureAssessment(at: reading.at), manager.parts))
        let rows = try #require(try memory.contents().tables.last).rows.sorted { $0.bytes > $1.bytes }
        #expect(rows.map(\.name) == ["POST /import", "POST /import", "GET /report"])
        #expect(rows.map(\.bytes) == [70 << 20, 5 << 20, 2 << 20] as [Int])
        #expect(rows.map(\.kind) == [.request, .heap, .request])
    }

    @Test func `K25 the recorded kills are those of the own group, so that a neighbour's kill explains no end`() throws {
        let memory = BoxMemory(), manager = ResourceManager(source: ScriptedPressureSource(), time: .running)
        let recorder = BoxRecorder(memory.start, of: memory, writer: BoxMemory.writer)
        var reading = PressureReading(
            at: .seconds(1), limit: .mebibytes(256), usage: .mebibytes(100), events: .init(oomKill: 7))
        for (kills, end) in [(nil, 8), (3, 3)] as [(Int?, Int)] {
            reading.ownKills = kills
            recorder.record(RecordedTurn(reading, PressureAssessment(at: reading.at), manager.parts))
            var contents = try memory.contents()
            #expect(contents.samples.last?.kills == kills)
            contents.killsAtNextStart = end
            #expect(BoxVerdict(contents).kind == .unknown)
            reading.at += .milliseconds(100)
        }
    }

    @Test func `C24 the next run knows that the last run was short of memory, and keeps the last record`() async throws {
        do {
            // Leaves the file as a killed run does.
            let box = try BoxFile(path, kernel: HostStateKernel())
            BoxMemory.writer.write(to: box.memory)
            BoxContents.Sample.reading(at: 1, available: .mebibytes(1), kills: nil)
                .write(to: box.memory + BoxLayout.turns.place(1), sequence: 1)
        }
        let manager = ResourceManager(source: ScriptedPressureSource()), lifecycle = Lifecycle(manager)
        let store = MemoryStateStore()
        try store.write(StateName.launches, LaunchRecord(phase: .running).bytes)
        lifecycle.countLaunches(in: store)
        let end = try manager.keepBlackBox(at: path)
        #expect(end?.hasPrefix("likely killed for memory: 1 MiB of 256 MiB") == true)
        let running = Task { try await manager.run() }
        await until { lifecycle.previousRun != nil }
        #expect(lifecycle.previousRun == .outOfMemory && manager.status.lifecycle.previousRun == "outOfMemory")
        #expect(throws: BoxFileError.self) { try ResourceManager(source: ScriptedPressureSource()).keepBlackBox(at: path) }
        running.cancel()
        try await running.value
        #expect(try BoxFile.read(path).contents.end == .shutdown)
        #expect(try BoxFile.read(BoxFile.previous(of: path)).contents.samples.count == 1)
    }

    @Test func `a run with a clean end leaves nothing to report`() async throws {
        let first = ResourceManager(source: ScriptedPressureSource())
        #expect(try first.keepBlackBox(at: path) == nil)
        let running = Task { try await first.run() }
        running.cancel()
        try await running.value
        #expect(first.parts.previousEnd == nil)
        let second = ResourceManager(source: ScriptedPressureSource())
        #expect(try second.keepBlackBox(at: path) == nil && second.parts.previousEnd == .clean)
    }

    @Test(arguments: PreviousRun.allCases) func `C24 a black box refines the recorded end, and contradicts no known end`(run: PreviousRun) {
        #expect(run.refined(by: nil) == run)
        let isOpen = run == .crashed || run == .unknown
        #expect(run.refined(by: .outOfMemory) == (isOpen ? .outOfMemory : run))
        #expect(run.refined(by: .unknown) == (run == .unknown ? .crashed : run))
        #expect(run.refined(by: .clean) == (run == .unknown ? .clean : run))
    }

    @Test(.needs(no: FileStateStoreKillTests.obstacle))
    func `T35 a start that is killed at any system call loses no record`() throws {
        let memory = BoxMemory()
        BoxMemory.writer.write(to: memory.start)
        BoxContents.Sample.reading(at: 1, available: .zero).write(to: memory.start + BoxLayout.turns.place(1), sequence: 1)
        let whole = memory.bytes
        var kills = 0
        for nth in 1...2000 {
            try directory.empty()
            try Data(whole).write(to: URL(fileURLWithPath: path))
            let (call, status) = FileStateStoreKillTests.run(
                FileStateStoreKillTests.program, ["plimsoll-bench", "_state", "--directory", directory.path, "box"], nth)
            let copies = [path, BoxFile.previous(of: path)].compactMap { try? BoxFile.read($0).contents }
            #expect(copies.contains { $0.samples.count == 1 }, "killed at system call \(nth), number \(call)")
            guard call >= 0 else {
                #expect(call == -1 && status == 0)
                break
            }
            kills += 1
        }
        #expect(kills > 10)
    }
}
