import ArgumentParser
import HTTPTypes
import Hummingbird
import Logging
import Plimsoll
import PlimsollHummingbird
import PlimsollLinux
import PlimsollService

/// What the middleware costs a request while memory is plentiful: the router's own responder is called, without a network, with the middleware, with one that does
/// nothing, and without, taking turns within one run.
struct BenchCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "bench", abstract: "Measure what the middleware costs a request; prints figure lines.")

    @Option(help: "Rounds of each kind.") var rounds = 301
    @Option(help: "Requests a round.") var requests = 1000

    func validate() throws {
        guard rounds >= 11, requests >= 1 else { throw ValidationError("--rounds \(rounds), --requests \(requests); allowed are 11 and 1 or more.") }
    }

    func run() async throws {
        let manager = ResourceManager(source: LinuxPressureSource())
        let shedding = LoadSheddingMiddleware<BareContext>(manager) { request, _ in DemoSite.priority(request.uri.path) }
        let plain = responder(nil), empty = responder(EmptyMiddleware()), shed = responder(shedding)
        let logger = Logger(label: "bench")
        var withShedding: [Double] = [], withEmpty: [Double] = []
        for round in 0..<rounds + 20 {
            // Forth and back, so that a drift of the machine's speed cancels out.
            let first = try await time(plain, logger), second = try await time(empty, logger), third = try await time(shed, logger)
            let fourth = try await time(shed, logger), fifth = try await time(empty, logger), sixth = try await time(plain, logger)
            // The first rounds warm up.
            guard round >= 20 else { continue }
            withShedding.append((third + fourth - first - sixth) / 2)
            withEmpty.append((second + fifth - first - sixth) / 2)
        }
        let counts = shedding.shedder.counts
        precondition(
            counts.refused.values.allSatisfy { $0.values.allSatisfy { $0 == 0 } }, "requests were shed while memory was plentiful: \(counts)")
        print("figure service.middleware \(median(withShedding)) us")
        print("an empty middleware in the same run: \(median(withEmpty)) us; \(rounds) paired rounds of \(requests) requests")
    }

    /// Microseconds a request.
    private func time(_ responder: some HTTPResponder<BareContext>, _ logger: Logger) async throws -> Double {
        let request = Request(
            head: HTTPRequest(method: .get, scheme: nil, authority: "localhost", path: "/picture/17"), body: .init(buffer: ByteBuffer()))
        let took = try await ContinuousClock().measure {
            for _ in 0..<requests { _ = try await responder.respond(to: request, context: BareContext(source: .init(logger: logger))) }
        }
        return Double(took / .nanoseconds(1)) / 1000 / Double(requests)
    }

    private func median(_ values: [Double]) -> String {
        let sorted = values.sorted(), middle = (sorted[sorted.count / 2] * 1000).rounded() / 1000
        return "\(middle)"
    }

    private func responder(_ middleware: (any MiddlewareProtocol<Request, Response, BareContext>)?) -> some HTTPResponder<BareContext> {
        let router = Router(context: BareContext.self)
        if let middleware { router.add(middleware: middleware) }
        router.get("/picture/:id") { _, _ in "ok" }
        return router.buildResponder()
    }
}

/// A context that needs no channel.
struct BareContext: RequestContext {
    struct Source: RequestContextSource {
        let logger: Logger
    }

    var coreContext: CoreRequestContextStorage

    init(source: Source) { coreContext = .init(source: source) }
}

/// Passes everything on.
struct EmptyMiddleware: RouterMiddleware {
    typealias Context = BareContext

    func handle(_ request: Request, context: BareContext, next: @concurrent (Request, BareContext) async throws -> Response) async throws -> Response
    {
        try await next(request, context)
    }
}
