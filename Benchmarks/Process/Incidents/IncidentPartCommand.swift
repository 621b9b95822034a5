import ArgumentParser
import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollLifecycle
import PlimsollLinux
import PlimsollService
import Synchronization

/// Service of one incident, in a separate process and group: a real manager with the standard policy beside
/// `IncidentLoad`.
struct IncidentPartCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "_incident", abstract: "Part of `plimsoll-bench incidents`.", shouldDisplay: false)

    @Option var incident: Incident
    @Option var limit: ByteCount
    @Option var directory: String
    /// Acts as the neighbour that shares the parent's limit: holds some memory, later more, until standard input
    /// ends.
    @Flag var neighbour = false

    /// Report of the service at its end.
    struct Result: Codable {
        /// A digit a reading: 0 for normal, 1 for warning, 2 for critical.
        var levels: String
        var ends: Bool
        var cacheBytes: Int
        var names: Int
        /// The first rises of the level, each with the evidence and the memory at that reading.
        var rises: [String]
    }

    private static let mostRises = 10

    func run() async throws {
        guard !neighbour else { return try reportingFailure { try beNeighbour() } }
        let levels = Mutex<[PressureLevel]>([]), rises = Mutex<[String]>([])
        let manager = ResourceManager(
            source: LinuxPressureSource(), time: SteadyClock.timekeeper,
            onTurn: { reading, assessment in
                let before = levels.withLock { levels in
                    defer { levels.append(assessment.level) }
                    return levels.last ?? .normal
                }
                guard assessment.level > before else { return }
                let rise =
                    "\(assessment.level) for \(assessment.evidence): \(reading.usage) used, "
                    + "\(reading.available ?? .zero) available, \(assessment.shortfall) short, "
                    + "stalled \(Int(assessment.stallShare * 100)) %"
                rises.withLock { if $0.count < Self.mostRises { $0.append(rise) } }
            })
        let cache = PurgeableCache<Int, [UInt8]>("cache") { _, bytes in bytes.count },
            shedder = RequestShedder(policy: SheddingPolicy(seed: 1))
        manager.register(cache)
        let shedding = manager.lifecycle.pausables.add(shedder)
        let running = Task { try await manager.run() }
        defer { running.cancel() }
        let (incident, limit, directory) = (incident, limit.bytes, directory)
        let names = try await PlainThread.run {
            try reportingFailure {
                let load = try IncidentLoad(
                    incident, limit: limit, directory: directory, level: { levels.withLock { $0.last ?? .normal } },
                    cache: cache, shedder: shedder)
                try load.run()
                return load.names
            }
        }
        let digits = levels.withLock { $0.map { $0 == .normal ? "0" : $0 == .warning ? "1" : "2" }.joined() }
        let ends = manager.reports.contains { if case .terminate = $0.action { true } else { false } }
        Output.line(
            JSONLine.encode(
                Result(
                    levels: digits, ends: ends, cacheBytes: cache.statistics.byteCount, names: names,
                    rises: rises.withLock { $0 })))
        withExtendedLifetime(shedding) {}
    }

    private func beNeighbour() throws {
        let first = try TouchedMemory(limit.bytes * 26 / 100)
        SteadyClock.sleep(IncidentLoad.stride * (IncidentLoad.ticks / 2))
        let second = try TouchedMemory(limit.bytes * 8 / 100)
        while readLine() != nil {}
        first.giveBack()
        second.giveBack()
    }
}

extension Incident: ExpressibleByArgument {}
