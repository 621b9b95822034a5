public import Plimsoll
import Synchronization

/// A request to show or serve something at once, such as an administrator's command, the first byte on an activated
/// socket or a link (C74).
public struct ActivationRequest: Sendable, Hashable {
    /// The name of the request.
    public var name: String
    /// The data that belongs to the request.
    public var payload: [UInt8]

    /// Creates a request of that name.
    public init(_ name: String, payload: [UInt8] = []) {
        self.name = name
        self.payload = payload
    }
}

/// The queue of activation requests. Requests are kept until the process is active and a handler is registered.
final class ActivationInbox: Sendable {
    typealias Handler = @Sendable (ActivationRequest) async throws -> Void

    private struct State {
        var handlers: [(id: UInt64, name: String, gate: AsyncCallGate, body: Handler)] = []
        var waiting: [ActivationRequest] = []
        var nextID: UInt64 = 0
    }

    private let state = Mutex(State())
    /// The most requests that may wait; more are refused. The sender must learn that a process never becomes active.
    static let capacity = 1024

    func add(_ name: String, _ body: @escaping Handler) -> Registration {
        let gate = AsyncCallGate()
        let id = state.withLock { state in
            state.nextID += 1
            state.handlers.append((state.nextID, name, gate, body))
            return state.nextID
        }
        return Registration(close: gate.close) { [weak self] in
            let gone = self?.state.withLock { state in
                state.handlers.firstIndex { $0.id == id }.map { state.handlers.remove(at: $0) }
            }
            withExtendedLifetime(gone) {}
        }
    }

    /// Queues a request. Returns false if too many requests wait.
    func post(_ request: ActivationRequest) -> Bool {
        state.withLock { state in
            guard state.waiting.count < Self.capacity else { return false }
            state.waiting.append(request)
            return true
        }
    }

    /// Dequeues the waiting requests as calls, each request to every handler. Returns no calls while there is no
    /// handler.
    func take() -> [FanOut.Handler] {
        let (handlers, waiting) = state.withLock { state in
            guard !state.handlers.isEmpty else { return (state.handlers, [] as [ActivationRequest]) }
            defer { state.waiting = [] }
            return (state.handlers, state.waiting)
        }
        return waiting.flatMap { request in
            handlers.map { handler in
                FanOut.Handler(name: "\(handler.name) (\(request.name))") {
                    try await handler.gate.call { try await handler.body(request) }
                }
            }
        }
    }
}

extension Lifecycle {
    /// Registers a handler for activation requests, including requests that came before.
    ///
    /// Each request is delivered once, as soon as the process is active.
    @discardableResult
    public func onActivation(_ name: String, _ body: @escaping @Sendable (ActivationRequest) async throws -> Void)
        -> Registration
    {
        let registration = activations.add(name, body)
        if state == .active { threads.run { await self.deliverActivations() } }
        return registration
    }

    /// Brings the process to the front and delivers `request` there. Launches the process first if needed.
    ///
    /// - Throws: `LifecycleError` once the process has terminated, or if 1,024 requests wait already.
    public func activate(_ request: ActivationRequest) async throws {
        guard activations.post(request) else {
            throw LifecycleError(
                "cannot queue activation \"\(request.name)\" because \(ActivationInbox.capacity) wait already, which is the limit; check why the process is not active"
            )
        }
        try await enterForeground(cause: .operator)
        if state == .active { await deliverActivations() }
    }

    /// Activates the process for a thread that waits for the outcome. Needs no cooperative pool, which such threads
    /// may have filled.
    package func activate(_ request: ActivationRequest, whenDone: @escaping @Sendable (Result<Void, any Error>) -> Void)
    {
        threads.run {
            let outcome: Result<Void, any Error>
            do { outcome = .success(try await self.activate(request)) } catch { outcome = .failure(error) }
            whenDone(outcome)
        }
    }

    func deliverActivations() async {
        let deadline = alarms.heartbeat.running + policy.backgroundDeadline
        let outcome = await FanOut.call(activations.take(), .forward, until: deadline, alarms, threads)
        guard !outcome.overran.isEmpty || !outcome.failures.isEmpty else { return }
        var report = LifecycleReport(target: .active)
        report.add(outcome)
        recordReport(report)
    }
}
