import Foundation
import Plimsoll
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import PlimsollService

/// A running manager with an admin endpoint beside it, for as long as a test's body does.
struct AdminFixture {
    let manager: ResourceManager
    let source: ScriptedPressureSource
    /// The clock of the manager and of the endpoint. The clock stands still unless moved.
    let clock: ManualClock
    let endpoint: AdminEndpoint
    /// The number of the endpoint's clock readings: two in each turn.
    let clockReads: ClockReads
    let directory: String
    let images = PurgeableCache<Int, [UInt8]>("images", limit: .mebibytes(4)) { _, bytes in bytes.count }
    let rows = PurgeableCache<Int, [UInt8]>("rows", rebuildCost: .expensive) { _, bytes in bytes.count }

    var path: String { directory + "/admin.sock" }

    static func run(
        allowsChanges: Bool = true, bounds: AdminEndpoint.Bounds = .init(), holders: Int = 0, runsManager: Bool = true,
        _ body: @Sendable @escaping (AdminFixture) async throws -> Void
    ) async throws {
        try await withDirectory { directory in
            let source = ScriptedPressureSource(), clock = ManualClock()
            let manager = ResourceManager(source: source, clock: clock)
            let clockReads = ClockReads(), time = clock.timekeeper
            let endpoint = AdminEndpoint(
                manager: manager, path: directory + "/admin.sock", allowsChanges: allowsChanges, bounds: bounds,
                time: Timekeeper(elapsed: {
                    clockReads.count.wrappingAdd(1, ordering: .sequentiallyConsistent)
                    return time.elapsed()
                }))
            let fixture = AdminFixture(
                manager: manager, source: source, clock: clock, endpoint: endpoint, clockReads: clockReads, directory: directory)
            fixture.register(holders)
            try endpoint.start()
            defer { endpoint.stop() }
            try await withThrowingTaskGroup(of: Void.self) { group in
                if runsManager {
                    group.addTask { try await manager.run() }
                    source.push(usage: .mebibytes(300), limit: .gibibytes(1))
                    await source.waitUntilIdle()
                }
                try await body(fixture)
                group.cancelAll()
                try await group.waitForAll()
            }
        }
    }

    /// Runs `body` with a new directory with a short path, and removes the directory afterwards.
    static func withDirectory<Result>(_ body: (String) async throws -> Result) async throws -> Result {
        let directory = NSTemporaryDirectory() + "pa-\(UUID().uuidString.prefix(8))"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        defer { try? FileManager.default.removeItem(atPath: directory) }
        return try await body(directory)
    }

    private func register(_ holders: Int) {
        manager.registerGroup("media").register(images, tags: ["rebuildable"])
        manager.register(rows)
        for key in 0..<4 {
            images.insert([UInt8](repeating: 1, count: 100_000), forKey: key)
            rows.insert([UInt8](repeating: 1, count: 50_000), forKey: key)
        }
        for number in 0..<holders { manager.register("holder-\(number)", byteCount: { number }, release: { _ in 0 }) }
    }

    func client() throws -> AdminClient { try AdminClient(path: path, timeLimit: .seconds(60)) }

    /// Sends a line unchanged, and waits for the answer.
    func answer(_ line: String) throws -> AdminAnswer {
        let client = try client()
        try client.send(Array((line + "\n").utf8))
        return try client.decode(client.nextLine())
    }

    /// Waits until `condition` holds. The awaited events happen on the endpoint's threads.
    func until(_ condition: () -> Bool, sourceLocation: SourceLocation = #_sourceLocation) async {
        await TestSupport.until(sourceLocation: sourceLocation, condition)
    }

    /// Moves the clock step by step until `condition` holds: the endpoint may not yet have seen the start of a time
    /// limit. Each step is seen before the next one. Otherwise, on a busy machine, several deadlines would pass at
    /// once.
    func pass(_ step: Duration, until condition: () -> Bool) async {
        var seen = clockReads.count.load(ordering: .sequentiallyConsistent) - 2
        await until {
            if condition() { return true }
            let reads = clockReads.count.load(ordering: .sequentiallyConsistent)
            guard reads >= seen + 2 else { return false }
            seen = reads
            clock.advance(by: step)
            endpoint.wake()
            return condition()
        }
    }

    final class ClockReads: Sendable { let count = Atomic(0) }
}
