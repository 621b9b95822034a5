import Foundation
import Hummingbird
import HummingbirdCore
import Logging
import Plimsoll
import PlimsollHummingbird
import PlimsollLifecycle
import PlimsollService
import PlimsollTesting
import Testing

/// The snippets of docs/Web.md, word for word.
struct WebArticleTests {
    private let manager: ResourceManager
    private let plimsoll: ResourceService
    private let router = Router()

    init() {
        manager = ResourceManager(source: ScriptedPressureSource())
        plimsoll = ResourceService(manager)
    }

    func twoLines() {
        router.addPlimsollRoutes(plimsoll)
        router.add(middleware: LoadSheddingMiddleware(manager))
    }

    func priorities() {
        let shedding = LoadSheddingMiddleware<BasicRequestContext>(manager) { request, _ in
            if request.uri.path.hasPrefix("/export") { return .sheddable }
            return request.uri.path == "/login" ? .critical : .normal
        }
        router.add(middleware: shedding)
    }

    func policy() -> SheddingPolicy {
        var policy = SheddingPolicy(limit: 200)
        policy[.normal, .half] = .init(arrivals: 0.8, concurrency: 0.6)
        policy[retryAfter: .half] = 1...5
        policy.patience = .milliseconds(300)
        return policy
    }

    struct OperatorsOnly: RouterMiddleware {
        typealias Context = BasicRequestContext

        func handle(
            _ request: Request, context: Context, next: @concurrent (Request, Context) async throws -> Response
        ) async throws -> Response {
            guard request.headers[.authorization] == "Bearer of tidings" else { throw HTTPError(.unauthorized) }
            return try await next(request, context)
        }
    }

    func operatorsOnly() {
        let operators = router.group().add(middleware: OperatorsOnly())
        operators.addPlimsollRoutes(AdminPages(plimsoll, title: "shop", allowsChanges: true))
    }

    func hosts(_ operators: RouterGroup<BasicRequestContext>) {
        operators.addPlimsollRoutes(AdminPages(plimsoll, hosts: ["shop.internal"]))
    }

    func bounds(logger: Logger) -> some ApplicationProtocol {
        let server = Application(
            router: router, server: .http1(configuration: .bounded(idle: .seconds(30), answer: .seconds(10), logger: logger)),
            configuration: .init(availableConnectionsDelegate: .maximum(1024, logger: logger)))
        return server
    }

    @Test func `the article's snippets match this file and run`() throws {
        #expect(policy().problem == nil)
        twoLines()
        priorities()
        WebArticleTests().operatorsOnly()
        #expect(try NamedParts(manager.status).admissions.count == 2)

        let here = URL(fileURLWithPath: #filePath), root = (0..<5).reduce(here) { url, _ in url.deletingLastPathComponent() }
        let own = Self.words(of: try String(contentsOf: here, encoding: .utf8))
        let article = try String(contentsOf: root.appendingPathComponent("docs/Web.md"), encoding: .utf8)
        let snippets = article.components(separatedBy: "```swift\n").dropFirst().compactMap { $0.components(separatedBy: "```").first }
        #expect(snippets.count == 6)
        for snippet in snippets { #expect(own.contains(Self.words(of: snippet)), "\(snippet)") }
    }

    /// Without indentation and line ends, which may differ.
    private static func words(of text: String) -> String { text.split(whereSeparator: \.isWhitespace).joined(separator: " ") }
}
