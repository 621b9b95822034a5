import Foundation
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Easy mistakes about memory that the library must not make.
@Suite(.serialized, .timeLimit(.minutes(5))) struct TrapTests {
    @Test func `T13 headroom alone raises the level where no stall precedes the kernel's kill, as without swap`() {
        var assessor = PressureAssessor()
        func level(_ seconds: Int, available: ByteCount) -> PressureLevel {
            let limit = ByteCount.mebibytes(512)
            let assessment = assessor.assess(
                PressureReading(
                    at: .seconds(seconds), boundary: .maximum, limit: limit, usage: limit - available, available: available,
                    stall: .init(some: .zero)))
            if assessment.level > .normal { #expect(assessment.evidence == .headroom) }
            return assessment.level
        }
        #expect(level(0, available: .mebibytes(300)) == .normal)
        #expect(level(60, available: .mebibytes(80)) == .warning)
        #expect(level(120, available: .mebibytes(40)) == .critical)
    }

    @Test(.needs(VolatileMemory.isSupported, "no memory can be volatile here"))
    func `T22 a release of pages that the kernel has reclaimed touches none of them`() {
        /// Returns the number of page faults of this thread: fields 10 and 12 of proc(5), counted after the thread's
        /// name.
        func faults() -> Int {
            let text = (try? String(contentsOfFile: "/proc/thread-self/stat", encoding: .utf8)) ?? ""
            let fields = text.split(separator: ")").last?.split(separator: " ") ?? []
            return fields.count > 9 ? (Int(fields[7]) ?? 0) + (Int(fields[9]) ?? 0) : 0
        }
        let cache = VolatileCache<Int, [UInt8]>("reclaimed", allowsHugePages: false, isVolatile: true, time: .running)
        for key in 0..<3000 { cache.insert([UInt8](repeating: 7, count: 8000), forKey: key) }
        let pages = cache.volatileBytes / 4096
        cache.reclaim { _, _ in true }
        let before = faults()
        #expect(before > 0)
        _ = cache.release(1 << 30)
        let touched = faults() - before
        #expect(cache.count == 0 && pages > 4000 && touched < pages / 10, "\(touched) of \(pages) pages")
    }

    @Test func `T23 bytes that others still hold are reported as given up, beside the measured fall`() async throws {
        try await RunningManager.run { running in
            let others = Mutex<[Int]>([])
            let cache = PurgeableCache<Int, Int>("shared", cost: { _, _ in 1 << 20 })
            cache.onRemoval { _, value, _ in others.withLock { $0.append(value) } }
            for key in 0..<200 { cache.insert(key, forKey: key) }
            running.manager.register(cache)
            var reports = running.comingReports.makeAsyncIterator()
            await running.available(.mebibytes(150))
            var report = try #require(await reports.next())
            while report.action != .release { report = try #require(await reports.next()) }
            #expect(report.released >= .mebibytes(100) && report.residentFall <= .zero, "\(report)")
            #expect(others.withLock { $0.count } == 200 - cache.count)
        }
    }

    @Test func `T25 the first warning releases the shortfall and leaves the rest`() async throws {
        try await RunningManager.run { running in
            let cache = ResourceManagerTests.filledCache("pages", mebibytes: 400)
            running.manager.register(cache)
            var reports = running.comingReports.makeAsyncIterator()
            await running.available(.mebibytes(190))
            var report = try #require(await reports.next())
            while report.action != .release { report = try #require(await reports.next()) }
            // A fifth of 1 GiB with the hysteresis is 283 MiB.
            #expect(report.level == .warning && report.released >= .mebibytes(90) && report.released < .mebibytes(150), "\(report)")
            #expect(cache.count > 250)
        }
    }

    @Test(arguments: [64, 256, 1024, 65_536])
    func `K40 a process is asked to end while memory for the ending is left`(mebibytes: Int) {
        let limit = ByteCount.mebibytes(mebibytes), line = min(limit * 0.1, .mebibytes(512))
        var assessor = PressureAssessor()
        func level(_ seconds: Double, _ available: ByteCount) -> PressureLevel {
            assessor.assess(
                PressureReading(at: .seconds(seconds), boundary: .maximum, limit: limit, usage: limit - available, available: available)
            ).level
        }
        // At the critical level the ladder ends a process, and the supervisor a unit. The level begins a tenth of the
        // limit before the kernel kills.
        #expect(level(0, line * 1.5) < .critical)
        #expect(level(60, line * 0.98) == .critical)
        // With growth that leaves less than a quarter of a second, the level begins earlier.
        var growing = PressureAssessor()
        func grows(_ seconds: Double, _ available: ByteCount) -> PressureLevel {
            growing.assess(
                PressureReading(at: .seconds(seconds), boundary: .maximum, limit: limit, usage: limit - available, available: available)
            ).level
        }
        _ = grows(0, line * 4)
        _ = grows(0.1, line * 3)
        #expect(grows(0.2, line * 1.5) == .critical)
    }

    @Test func `K11 silence does not end pressure: totals are read every second, and only they bring the level down`() async throws {
        let source = SilentSource(stallsUntil: .seconds(40), endsAt: .seconds(120))
        let seen = Mutex<[(at: Duration, level: PressureLevel)]>([])
        let manager = ResourceManager(
            source: source, time: source.clock.timekeeper,
            onTurn: { reading, assessment in seen.withLock { $0.append((reading.at, assessment.level)) } })
        let running = Task { try await manager.run() }
        await until { source.isOver }
        running.cancel()
        try await running.value
        let levels = seen.withLock { $0 }
        let first = try #require(levels.first { $0.level == .warning }?.at), last = try #require(levels.last { $0.level == .warning }?.at)
        #expect(first < .seconds(20) && last > .seconds(40) && last < .seconds(100), "\(first) to \(last)")
        #expect(levels.allSatisfy { $0.at < first || $0.at > last || $0.level == .warning } && levels.last?.level == .normal)
        #expect(zip(levels, levels.dropFirst()).allSatisfy { $1.at - $0.at <= .seconds(1) })
    }
}

/// A group that stalls for a while and whose trigger never fires, so that only its totals show the stall. The clock
/// advances while the loop waits.
private final class SilentSource: PressureSource {
    let clock = ManualClock()
    private let stallsUntil: Duration
    private let endsAt: Duration
    private let over = Parker()
    private let hasEnded = Mutex(false)

    init(stallsUntil: Duration, endsAt: Duration) { (self.stallsUntil, self.endsAt) = (stallsUntil, endsAt) }

    var isOver: Bool { hasEnded.withLock { $0 } }

    var capabilities: Capabilities { Capabilities(support: .ownGroup, signals: []) }
    var rings: Bool { true }

    func read(at: Duration) throws(PressureSourceError) -> PressureReading {
        PressureReading(
            at: at, boundary: .maximum, limit: .gibibytes(1), usage: .mebibytes(300), available: .mebibytes(700),
            stall: .init(some: min(at, stallsUntil) * 0.3))
    }

    func wait(atMost limit: Duration) {
        guard clock.timekeeper.elapsed() < endsAt else {
            hasEnded.withLock { $0 = true }
            over.park()
            return
        }
        clock.advance(by: limit)
    }

    func wake() { over.unpark() }
    func footprint() -> Footprint { Footprint() }
}
