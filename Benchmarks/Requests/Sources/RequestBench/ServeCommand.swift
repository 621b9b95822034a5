import ArgumentParser
import Foundation
import Hummingbird
import Logging
import Plimsoll
import PlimsollHummingbird
import PlimsollJemalloc
import PlimsollLinux
import PlimsollService

/// The budgets of a service.
enum Budgets: String, CaseIterable, ExpressibleByArgument {
    /// No budgets, as before.
    case none
    /// No budgets, and a middleware that does nothing.
    case empty
    /// Each request has a limit.
    case limit
    /// No limits; at critical the largest request is cancelled.
    case largest

    /// True if the memory of requests is counted.
    var count: Bool { self == .limit || self == .largest }
}

/// A middleware that does nothing, and so has the least cost of any.
struct EmptyMiddleware<Context: RequestContext>: RouterMiddleware {
    @concurrent func handle(
        _ request: Request, context: Context, next: @concurrent (Request, Context) async throws -> Response
    ) async throws -> Response { try await next(request, context) }
}

/// A web service that any client may ask for too much.
struct ServeCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "serve", abstract: "Serve requests, one kind of which takes as much memory as asked for.")

    @Option(help: "Budgets of requests: none, limit or largest; empty for none and a middleware that does nothing.")
    var budgets = Budgets.none
    @Option(help: "Limit of a request in MiB, and the least to be cancelled.") var mebibytes = 32

    func run() async throws {
        if budgets.count { try await Jemalloc.meterRequests() }
        var policy = PressurePolicy.standard
        if budgets == .largest { policy.ladder = policy.ladder.cancellingLargestRequest(above: .mebibytes(mebibytes)) }
        let manager = ResourceManager(source: LinuxPressureSource(), policy: policy)
        let thumbnails = PurgeableCache<String, [UInt8]>("thumbnails", cost: { $1.count + 96 })
        manager.register(thumbnails)

        let router = Router().addPlimsollRoutes(manager)
        if budgets == .empty { router.add(middleware: EmptyMiddleware()) }
        if budgets.count {
            router.add(middleware: MemoryBudgetMiddleware(limit: budgets == .limit ? .mebibytes(mebibytes) : nil))
        }
        // As in the quick start.
        router.get("/thumbnail/:name") { _, context in
            let name = try context.parameters.require("name")
            return ByteBuffer(bytes: try await thumbnails.value(forKey: name) { Array("thumbnail of \(name)".utf8) })
        }
        router.get("/work") { _, _ in
            var parts: [[UInt8]] = []
            for _ in 0..<4 {
                parts.append([UInt8](repeating: 1, count: 32 << 10))
                try await Task.sleep(for: .milliseconds(1))
            }
            return "\(parts.reduce(0) { $0 + $1.count })\n"
        }
        router.get("/take/:mebibytes") { request, context in
            let count = try context.parameters.require("mebibytes", as: Int.self)
            let seconds = request.uri.queryParameters.get("seconds", as: Int.self) ?? 0
            var taken: [[UInt8]] = []
            for _ in 0..<count {
                try Task.checkCancellation()
                taken.append([UInt8](repeating: 1, count: 1 << 20))
                await Task.yield()
            }
            try await Task.sleep(for: .seconds(seconds))
            return "\(taken.count)\n"
        }
        let application = Application(
            router: router, configuration: .init(address: .hostname("127.0.0.1", port: 0)),
            onServerRunning: { channel in
                // The benchmark waits for this line.
                print("listening \(channel.localAddress?.port ?? 0) \(getpid())")
                fflush(nil)
            }, logger: Logger(label: "requests") { _ in SwiftLogNoOpLogHandler() })
        let watching = Task { try await manager.run() }
        try await application.runService()
        watching.cancel()
        try await watching.value
    }
}
