import Foundation
import Hummingbird
import HummingbirdCore
import Plimsoll
import PlimsollHummingbird
import PlimsollLifecycle
import PlimsollService
import PlimsollTesting
import Synchronization
import Testing

/// A manager that runs on readings a test pushes, and the router in front of it.
struct Harness: Sendable {
    let source = ScriptedPressureSource()
    let manager: ResourceManager
    let shedding: LoadSheddingMiddleware<BasicRequestContext>

    /// - Parameters:
    ///   - patience: time that requests wait before a refusal; none, so that tests of refusals do not wait.
    ///   - isManaged: true if the manager narrows the shedder; false if only the test does.
    init(limit: Int? = nil, patience: Duration = .zero, retryAfter: ClosedRange<Int>? = nil, isManaged: Bool = true) {
        manager = ResourceManager(source: source)
        var policy = SheddingPolicy(limit: limit, seed: 42, patience: patience)
        for extent in [QuiesceExtent.open, .half, .quarter, .least] { policy[retryAfter: extent] = retryAfter }
        let priority: LoadSheddingMiddleware<BasicRequestContext>.Priority = { request, _ in
            request.uri.path == "/pay" ? .critical : request.uri.path == "/export" ? .sheddable : .normal
        }
        shedding =
            isManaged
            ? LoadSheddingMiddleware(manager, policy: policy, priority: priority)
            : LoadSheddingMiddleware(RequestShedder("http", policy: policy), priority: priority)
    }

    func application(_ change: (inout AdminPages) -> Void = { _ in }, server: HTTPServerBuilder = .http1()) -> some ApplicationProtocol {
        let router = Router()
        var pages = AdminPages(manager)
        change(&pages)
        // Behind the middleware, so that only the exemption keeps these pages reachable.
        router.add(middleware: shedding)
        router.addPlimsollRoutes(pages)
        for path in ["/", "/pay", "/export"] { router.get(RouterPath(path)) { _, _ in "served\n" } }
        return Application(router: router, server: server, configuration: .init(address: .hostname("127.0.0.1", port: 0)))
    }

    /// Runs `body` while the manager runs and has read once, at 100 MiB of 256 MiB.
    func running(_ body: @Sendable (Harness) async throws -> Void) async throws {
        source.push(usage: .mebibytes(100), limit: .mebibytes(256))
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await manager.run() }
            await source.waitUntilIdle()
            try await manager.lifecycle.launch()
            try await body(self)
            group.cancelAll()
            try await group.waitForAll()
        }
    }

    /// Rehearses `level` and returns when the shedder has been notified.
    func reach(_ level: PressureLevel) async {
        let probe = ShareProbe()
        // Narrowing reaches members in the order of addition, so that the shedder knows before the probe.
        let registration = manager.lifecycle.pausables.add(probe)
        manager.simulate(level, for: .seconds(600))
        await probe.reached(level == .warning ? .half : .quarter)
        registration.cancel()
    }
}

/// The parts of a status' JSON that tests read.
struct NamedParts: Decodable {
    struct Part: Decodable {
        var name: String
        var limit: Int?
    }
    var holders: [Part]
    var admissions: [Part]

    init(_ status: ManagerStatus) throws { self = try JSONDecoder().decode(Self.self, from: Data(status.json().utf8)) }
}

/// Receives extents.
final class ShareProbe: Quiescable {
    let name = "probe"
    private let state = Mutex<(extent: QuiesceExtent, waiting: [(QuiesceExtent, CheckedContinuation<Void, Never>)])>((.open, []))

    func quiesce(to extent: QuiesceExtent) {
        let done = state.withLock { state in
            state.extent = extent
            let done = state.waiting.filter { $0.0 >= extent }
            state.waiting.removeAll { $0.0 >= extent }
            return done
        }
        for (_, continuation) in done { continuation.resume() }
    }

    /// Returns when no more than `extent` is left.
    func reached(_ extent: QuiesceExtent) async {
        await withCheckedContinuation { continuation in
            let isReached = state.withLock { state in
                if state.extent > extent { state.waiting.append((extent, continuation)) }
                return state.extent <= extent
            }
            if isReached { continuation.resume() }
        }
    }
}

extension WebClient {
    func get(_ uri: String, headers: HTTPFields = [:]) async throws -> WebAnswer { try await execute(uri: uri, method: .get, headers: headers) }

    /// Returns the number of served requests among `count` requests.
    func served(_ uri: String, of count: Int) async throws -> Int {
        var served = 0
        for _ in 0..<count where try await get(uri).status == .ok { served += 1 }
        return served
    }
}
