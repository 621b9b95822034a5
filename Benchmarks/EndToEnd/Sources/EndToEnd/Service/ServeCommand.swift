import ArgumentParser
import Comparing
import Foundation
import Glibc
import Hummingbird
import HummingbirdCore
import Logging
import Plimsoll
import PlimsollHummingbird
import PlimsollLifecycle
import PlimsollLinux
import PlimsollService
import ServiceLifecycle
import Synchronization
import UnixSignals

/// Serves on loopback until SIGTERM, then prints a summary.
struct ServeCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "serve",
        abstract: "Serve on loopback until SIGTERM; print `listening PORT PID`, and a line of JSON at the end.")

    @Option(help: "How caches are bounded: \(Variant.names).") var variant: String
    @Option(help: "Memory limit that shares are of, in bytes.") var limit: Int
    @Option(help: "Port to listen on; 0 for one that is free.") var port = 0
    @Option(help: "File for the manager's state 20 times a second, as lines of JSON.") var samples: String?

    func validate() throws {
        guard Variant(variant) != nil else {
            throw ValidationError("--variant is \(variant); allowed is \(Variant.names).")
        }
        guard limit >= 16 << 20 else {
            throw ValidationError("--limit is \(limit); allowed is \(16 << 20) bytes and more.")
        }
        guard (0...65535).contains(port) else { throw ValidationError("--port is \(port); allowed is 0 to 65535.") }
    }

    func run() async throws {
        var logger = Logger(label: "e2e")
        logger.logLevel = .error
        let variant = Variant(variant)!, router = Router()
        let (site, shedder) = makeSite(variant, router, logger)
        site.addRoutes(to: router)
        let server = Application(
            router: router,
            configuration: .init(address: .hostname("127.0.0.1", port: port), backlog: 1024),
            onServerRunning: { channel in
                print("listening \(channel.localAddress?.port ?? 0) \(getpid())")
                fflush(nil)
            }, logger: logger)

        let sampler = site.manager.map { LevelSampler($0, site.work, limit: limit, samples: samples) }
        sampler?.start()
        let settings = ConfigurationProblem.orExit { () throws(ConfigurationProblem) in
            try ServiceSettings.fromEnvironment()
        }
        let plimsoll = site.manager.map { ResourceService($0, settings: settings, logger: logger) }
        let services: [any Service] = plimsoll.map { [$0, server, $0.shutdownBeacon] } ?? [server]
        let group = ServiceGroup(services: services, gracefulShutdownSignals: [.sigterm, .sigint], logger: logger)
        try await group.run()
        sampler?.stop()
        print(String(decoding: try JSONEncoder().encode(summary(site, shedder, sampler)), as: UTF8.self))
    }

    /// Makes the caches, and the manager with the middleware if the variant has them.
    private func makeSite(_ variant: Variant, _ router: Router<BasicRequestContext>, _ logger: Logger) -> (
        Site, RequestShedder?
    ) {
        func share(_ percent: Int) -> ByteCount { ByteCount(limit / 100 * percent) }
        func heap(_ name: String, _ limit: ByteCount?, _ cost: RebuildCost) -> HeapContents {
            HeapContents(name, limit: limit, rebuildCost: cost)
        }
        switch variant {
        case .unbounded:
            return (
                Site(
                    pictures: heap("pictures", nil, .cheap), sessions: heap("sessions", nil, .expensive), manager: nil),
                nil
            )
        case .fixed(let percent):
            let sessions = heap("sessions", share(2), .expensive)
            return (Site(pictures: heap("pictures", share(percent), .cheap), sessions: sessions, manager: nil), nil)
        case .nscache(let percent):
            return (
                Site(
                    pictures: FoundationContents(limit: share(percent)), sessions: FoundationContents(limit: share(2)),
                    manager: nil), nil
            )
        case .plimsoll(let kind):
            let policy = PressurePolicy(division: kind == .heapProportional ? .proportional : .byWorth)
            let manager = ResourceManager(source: LinuxPressureSource(), policy: policy)
            let sessions = heap("sessions", nil, .expensive)
            manager.register(sessions.cache)
            let pictures: any Contents
            if kind == .heap || kind == .heapProportional {
                let contents = heap("pictures", nil, .cheap)
                manager.register(contents.cache)
                pictures = contents
            } else {
                let contents = VolatileContents(cache: VolatileCache("pictures", rebuildCost: .cheap))
                manager.register(contents.cache)
                pictures = contents
            }
            let site = Site(pictures: pictures, sessions: sessions, manager: manager)
            guard kind != .unshed else { return (site, nil) }
            let shedding = LoadSheddingMiddleware<BasicRequestContext>(manager) { request, _ in
                Site.priority(request.uri.path)
            }
            router.add(middleware: shedding)
            return (site, shedding.shedder)
        }
    }

    private func summary(_ site: Site, _ shedder: RequestShedder?, _ sampler: LevelSampler?) -> ServerSummary {
        var summary = ServerSummary()
        summary.peakResidentBytes = ResidentSet.peak
        summary.picturesMade = site.made.pictures.load(ordering: .relaxed)
        summary.sessionsMade = site.made.sessions.load(ordering: .relaxed)
        guard let manager = site.manager, let sampler else { return summary }
        let status = manager.status, result = sampler.result
        summary.secondsAtLevel = result.secondsAtLevel
        summary.heldSeconds = result.heldSeconds
        summary.transitions = status.levelChanges
        summary.takenByKernelBytes = status.lazyFreedBytes
        summary.exportsStopped = site.work.exportsStopped
        for (priority, reasons) in shedder?.counts.refused ?? [:] {
            for (reason, count) in reasons where count > 0 { summary.refused["\(priority) \(reason)"] = count }
        }
        return summary
    }
}
