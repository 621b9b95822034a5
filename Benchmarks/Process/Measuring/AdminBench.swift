import ArgumentParser
import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollLinux
import PlimsollService
import Synchronization

/// Measures the time for a status answer from a service whose memory is at the limit.
struct AdminBenchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "admin")

    @Option(help: "Round trips, each on a connection of its own.") var count = 400
    @Option(help: "The group's limit.") var limit = ByteCount.mebibytes(256)
    @Option(help: "Directory on a disk for the churn of page cache.", completion: .directory) var directory = "."

    func validate() throws {
        try Allowed.count(count, "--count", in: 10...100_000)
        try Allowed.size(limit, "--limit", in: .mebibytes(128) ... .gibibytes(1))
    }

    func run() throws {
        try reportingFailure {
            let signals = SignalQueue(), group: LimitedGroup
            do { group = try GroupMaker().make("admin", limit: limit) } catch {
                throw Failure.unavailable("\(error)\nWhat to do: \(GroupMaker.Refusal.remedy).")
            }
            defer { group.remove() }
            let file = try Churn.makeFile(limit * 1.5, in: directory)
            defer { unlink(file) }
            try ScratchDirectory.with("admin") { scratch in
                let service = try group.startPart([
                    "_admin-service", "--socket", scratch + "/s", "--limit", "\(limit.bytes)",
                ])
                defer { service.end(within: .zero) }
                let churn = try group.startPart(["_churn", "--file", file, "--seconds", "600"])
                defer { churn.end(within: .zero) }
                try measure(scratch + "/s", service, group, signals)
            }
        }
    }

    private func measure(_ path: String, _ service: ChildProcess, _ group: LimitedGroup, _ signals: SignalQueue) throws
    {
        func ask() throws -> (took: Double, level: String) {
            let began = SteadyClock.now
            let answer = try asking { () throws(AdminError) in
                try AdminClient(path: path).answer(to: AdminRequest(.status))
            }
            return ((SteadyClock.now - began).milliseconds, answer.status?.level ?? "")
        }
        func check() throws {
            if signals.endingArrived() != nil { throw Failure.failed("interrupted") }
            guard let ending = service.poll() else { return }
            throw Failure.failed("the service ended with status \(ending.status) and \(group.kills) OOM kills")
        }
        let deadline = SteadyClock.now + .seconds(90)
        var calm = 0
        while calm < 20 {
            try check()
            guard SteadyClock.now < deadline else {
                throw Failure.failed("the service did not reach the critical level and stay there")
            }
            SteadyClock.sleep(.milliseconds(100))
            calm = (try? ask())?.level == "critical" ? calm + 1 : 0
        }
        let hits = group.limitHits
        var times: [Double] = [], critical = 0, usage: [Double] = []
        for _ in 0..<count {
            try check()
            let (took, level) = try ask()
            times.append(took)
            if level == "critical" { critical += 1 }
            usage.append(Double(group.usage.bytes) / Double(limit.bytes) * 100)
            SteadyClock.sleep(.milliseconds(10))
        }
        Bench.figure("service.admin-at-critical", median(times) ?? .nan, "ms")
        Bench.figure("service.admin-at-critical.p99", quantile(0.99, of: times) ?? .nan, "ms")
        Bench.figure("service.admin-at-critical.worst", times.max() ?? .nan, "ms")
        // The claim includes that the level was critical, with memory at the limit.
        Bench.figure("service.admin-at-critical.critical", Double(critical) / Double(count) * 100, "percent")
        Bench.figure("service.admin-at-critical.usage", median(usage) ?? .nan, "percent")
        Bench.figure("service.admin-at-critical.limit-hits", Double(group.limitHits - hits), "count")
        if group.limitHits == hits {
            throw Failure.failed("the group did not meet its limit; the figure is inconclusive")
        }
    }
}

/// Runs `body`. An error of the admin socket becomes a failure of the command.
private func asking<Result>(_ body: () throws(AdminError) -> Result) throws -> Result {
    do throws(AdminError) { return try body() } catch { throw Failure.unavailable(printable(error.description)) }
}

/// A service that is kept at the critical level, in a separate process.
struct AdminServiceCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "_admin-service", abstract: "Part of `plimsoll-bench`.", shouldDisplay: false)

    @Option var socket: String
    @Option var limit: ByteCount
    @Flag var allowChanges = false
    @Flag(help: "Use no additional memory.") var calm = false

    func run() async throws {
        let manager = ResourceManager(source: LinuxPressureSource(), time: SteadyClock.timekeeper)
        let pages = VolatileCache<UInt64, [UInt8]>("pages"),
            rows = PurgeableCache<UInt64, [UInt8]>("rows", rebuildCost: .expensive) { _, bytes in bytes.count + 96 }
        manager.registerGroup("media").register(pages)
        manager.register(rows)
        let endpoint = AdminEndpoint(manager: manager, path: socket, allowsChanges: allowChanges)
        try reportingFailure { try asking { () throws(AdminError) in try endpoint.start() } }
        defer { endpoint.stop() }
        let task = manager.beginBackgroundTask("export") { task, _ in task.end() }
        task.progress(completed: 3, total: 10)
        let isOver = SharedFlag()
        let filler = PlainThread { Self.fill(pages, rows, until: isOver) }
        filler?.detach()
        if !calm { PlainThread { Ballast(limit: limit).hold(until: isOver) }?.detach() }
        async let _: Void = manager.run()
        await ParentPipe.waitUntilClosed()
        isOver.raise()
    }

    /// Inserts and looks up until `isOver`, at some 20 MB/s.
    private static func fill(
        _ pages: VolatileCache<UInt64, [UInt8]>, _ rows: PurgeableCache<UInt64, [UInt8]>, until isOver: SharedFlag
    ) {
        var key: UInt64 = 0
        while !isOver.isRaised {
            for _ in 0..<20 {
                key += 1
                pages.insert([UInt8](repeating: 1, count: 8192), forKey: key)
                rows.insert([UInt8](repeating: 1, count: 2048), forKey: key)
                _ = pages.value(forKey: key / 2)
                _ = rows.value(forKey: key - min(key, 100))
            }
            SteadyClock.sleep(.milliseconds(10))
        }
    }
}

/// A flag that ends the work of other threads.
final class SharedFlag: Sendable {
    // Relaxed ordering: no other memory is published through this flag.
    private let flag = Atomic<Bool>(false)
    var isRaised: Bool { flag.load(ordering: .relaxed) }
    func raise() { flag.store(true, ordering: .relaxed) }
}

/// Ordinary memory that no cache can release. Leaves 5 to 8 % of the limit allocatable: well within the critical
/// margin of 10 %.
struct Ballast {
    let limit: ByteCount
    private static let chunk = 1 << 20

    func hold(until isOver: SharedFlag) {
        let source = LinuxPressureSource()
        var chunks: [UnsafeMutableRawPointer] = []
        while !isOver.isRaised {
            let available = (try? source.read(at: SteadyClock.now))?.available ?? .zero
            if available > limit * 0.08,
                let chunk = mmap(nil, Self.chunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                chunk != MAP_FAILED
            {
                memset(chunk, 1, Self.chunk)
                chunks.append(chunk)
                if available > limit * 0.2 { continue }
            } else if available < limit * 0.05, let chunk = chunks.popLast() {
                munmap(chunk, Self.chunk)
            }
            SteadyClock.sleep(.milliseconds(20))
        }
    }
}
