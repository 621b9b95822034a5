import CPlimsollMemory
import Glibc
package import Plimsoll
import PlimsollLinux
import PlimsollTesting
import Synchronization

/// The process under stress: fills a cache, then requests more memory than is left.
final class Subject: Sendable {
    private let plan: Scenario.Plan
    private let limit: ByteCount
    private let seed: UInt64
    private let group: LimitedGroup
    private let directory: String
    let cache: ByteCache

    /// Start of the ramp, and time of the first level seen since, on the steady clock in microseconds; zero for not
    /// yet.
    private let rampBegan = Atomic<Int>(0)
    private let noticed = Atomic<Int>(0)
    private let isRamping = Atomic<Bool>(false)
    /// Upper bound, exclusive, of all keys inserted.
    private let keyEnd = Atomic<UInt64>(0)

    /// One page below the allocator's next size, so that a value is 64 KiB with its header.
    static let valueSize = (64 << 10) - 64
    private static let line = 0.8

    init(_ scenario: Scenario, _ protection: Protection, limit: ByteCount, seed: UInt64, directory: String) throws {
        cache = ByteCache("cache", isVolatile: protection == .volatile)
        plan = scenario.plan(limit: limit)
        self.limit = limit
        self.seed = seed
        self.directory = directory
        let own = ControlGroup(HostKernel())
        guard let memory = own.memory.path else { throw Failure.unavailable("the process is in no group") }
        group = LimitedGroup(version: own.version, memory: memory, stall: own.unified.path)
    }

    /// Observes every turn of the manager; allocates nothing.
    func noteTurn(_ assessment: PressureAssessment) {
        guard assessment.level > .normal, rampBegan.load(ordering: .relaxed) > 0, noticed.load(ordering: .relaxed) == 0
        else { return }
        noticed.store(microseconds(assessment.at), ordering: .relaxed)
    }

    /// Plays the scenario. Returns when all requested memory is held.
    func endure() throws -> (began: Duration, crossed: Duration?) {
        try fillCache()
        let file = try fillPageCache()
        defer { if let file { close(file) } }
        // Let the growth of filling end before the measured growth begins.
        SteadyClock.sleep(.milliseconds(300))
        var line = limit * Self.line
        if let live = plan.liveBeforeHalving {
            Ramp(limit * live, bytesPerSecond: 200e6).run()
            line = limit * (Self.line / 2)
            Output.line("ready")
            try waitForLowerLimit()
        }
        let began = SteadyClock.now
        rampBegan.store(microseconds(began), ordering: .relaxed)
        isRamping.store(true, ordering: .relaxed)
        let demand = Demand(held: group.pinned, line: line)
        let clients = (0..<plan.readers).compactMap { _ in PlainThread { [self] in read() } }
        let traffic = plan.traffic > 0 ? PlainThread { [self] in ask(demand) } : nil
        if let bursts = plan.bursts {
            bursts.run(limit: limit, seed: seed)
        } else {
            Ramp(
                limit * plan.ramp, bytesPerSecond: plan.rate, threads: plan.threads, hugePages: plan.hugePages,
                demand: demand
            ).run()
        }
        isRamping.store(false, ordering: .relaxed)
        for client in clients { client.join() }
        traffic?.join()
        // Bursts come and go, so no single moment is the crossing.
        return (began, plan.bursts == nil ? demand.crossed : nil)
    }

    /// Returns the result of a run that was survived.
    func result(_ reports: [ActionReport], began: Duration, crossed: Duration?) -> SubjectResult {
        let passes = reports.filter { $0.action == .release && $0.began >= began }
        var result = SubjectResult()
        result.purgeMicroseconds = passes.map { microseconds($0.took) }
        result.returnedBytes =
            passes.reduce(0) { $0 + max(0, max($1.residentFall, $1.usageFall).bytes) } + cache.noticeDrops()
        verify(&result)
        guard let crossed else { return result }
        let first = noticed.load(ordering: .relaxed)
        if first > 0 { result.noticeMicroseconds = first - microseconds(crossed) }
        result.releaseMicroseconds = passes.first.map { microseconds($0.began - crossed) }
        return result
    }

    /// Checks every byte that the cache still has: a key's value is always the same.
    private func verify(_ result: inout SubjectResult) {
        for key in 0..<keyEnd.load(ordering: .relaxed) {
            guard let bytes = cache.value(forKey: key) else { continue }
            result.keptEntries += 1
            let expected = value(key)
            guard bytes != expected else { continue }
            result.wrongBytes += abs(bytes.count - expected.count) + zip(bytes, expected).count { $0 != $1 }
        }
        let statistics = cache.statistics
        result.lostEntries = statistics.evictions + statistics.purged + statistics.droppedByKernel
    }

    /// Returns the value for a key, always the same. Values of traffic have many sizes.
    private func value(_ key: UInt64) -> [UInt8] {
        plan.traffic > 0 ? Thumbnail.render(key) : Thumbnail.render(key, byteCount: Self.valueSize)
    }

    // MARK: Parts

    private func fillCache() throws {
        var key: UInt64 = 0
        let deadline = SteadyClock.now + .seconds(20)
        while cache.byteCount < (limit * plan.cache).bytes {
            // Refused or evicted: the manager lets the cache grow a step at a time.
            if !cache.insert(value(key), forKey: key) { SteadyClock.sleep(.milliseconds(1)) }
            key += 1
            guard SteadyClock.now < deadline else {
                throw Failure.failed("cannot fill the cache: \(cache.byteCount) of \(limit * plan.cache)")
            }
        }
        keyEnd.store(key, ordering: .relaxed)
    }

    /// Writes a file, so that its page cache is charged to this group, and makes the pages clean. Returns the file,
    /// to be kept open.
    private func fillPageCache() throws -> Int32? {
        guard plan.pageCache > 0 else { return nil }
        let path = directory + "/plimsoll-stress-\(getpid())"
        let file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        guard file >= 0 else { throw Failure.failed("cannot use \(path): \(String(cString: strerror(errno)))") }
        // Unlinked from here on: no file is left behind, however this process ends.
        unlink(path)
        let block = [UInt8](repeating: 7, count: 1 << 20)
        for _ in 0..<(limit * plan.pageCache).bytes >> 20 where write(file, block, block.count) != block.count {
            throw Failure.failed("cannot use \(path): \(String(cString: strerror(errno)))")
        }
        fdatasync(file)
        return file
    }

    private func waitForLowerLimit() throws {
        let file = group.memory + (group.version == .v2 ? "/memory.max" : "/memory.limit_in_bytes")
        let deadline = SteadyClock.now + .seconds(20)
        while (ControlFile.number(file) ?? .max) >= limit.bytes {
            guard SteadyClock.now < deadline else { throw Failure.failed("the limit was not lowered") }
            SteadyClock.sleep(.milliseconds(1))
        }
    }

    /// Looks up all keys that were inserted, for as long as the ramp goes on.
    private func read() {
        let end = keyEnd.load(ordering: .relaxed)
        var key: UInt64 = 0
        while isRamping.load(ordering: .relaxed) {
            _ = cache.value(forKey: key)
            key = (key + 1) % max(1, end)
        }
    }

    /// Requests values that the cache should keep, at a bounded rate, for as long as the ramp goes on. On a busy
    /// machine until a second's worth was requested, so that `traffic` always demands more than the limit.
    private func ask(_ demand: Demand) {
        let values = Double(limit.bytes) * plan.traffic / Double(Thumbnail.meanSize)
        let zipf = Zipf(count: max(1000, Int(values * 8)), skew: TrafficPlan.skew)
        keyEnd.store(UInt64(zipf.count), ordering: .relaxed)
        var random = SeededGenerator(seed: seed)
        var due = SteadyClock.now, requested = ByteCount.zero
        while isRamping.load(ordering: .relaxed) || requested < limit * plan.traffic {
            let key = UInt64(zipf.next(using: &random))
            if cache.value(forKey: key) == nil {
                let bytes = value(key)
                demand.add(bytes.count)
                requested += ByteCount(bytes.count)
                cache.insert(bytes, forKey: key)
                due += .seconds(1 / values)
                SteadyClock.sleep(until: due)
            }
        }
    }

    private func microseconds(_ duration: Duration) -> Int { Int(duration.inNanoseconds / 1000) }
}

/// Pages straight from the kernel, all written to: the baseline for giving memory back.
package final class RegionMemory {
    private let start: UnsafeMutableRawPointer
    private let size: ByteCount
    private var isMapped = true

    package init(_ size: ByteCount) throws {
        var address: UnsafeMutableRawPointer?
        try Self.check(plimsoll_map(size.bytes, plimsoll_page_size(), &address), "mapping \(size)")
        guard let address else { throw Failure.failed("mapping \(size) gave no address") }
        start = address
        self.size = size
        try Self.check(plimsoll_open(start, size.bytes), "opening \(size)")
        for offset in stride(from: 0, to: size.bytes, by: plimsoll_page_size()) {
            start.storeBytes(of: 1, toByteOffset: offset, as: UInt8.self)
        }
    }

    /// Unmaps everything in one call, addresses included.
    package func unmap() throws {
        isMapped = false
        try Self.check(plimsoll_unmap(start, size.bytes), "unmapping \(size)")
    }

    deinit { if isMapped { _ = plimsoll_unmap(start, size.bytes) } }

    private static func check(_ error: Int32, _ what: String) throws {
        if error != 0 { throw Failure.failed("\(what) failed: \(String(cString: strerror(error)))") }
    }
}
