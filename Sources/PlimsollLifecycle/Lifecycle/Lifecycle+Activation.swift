public import Plimsoll
import Synchronization

/// A request to show or serve something at once (C74).
struct ActivationRequest: Sendable {
    var name: String
    var payload: [UInt8]
}

/// The queue of activation requests. Requests are kept until the process is active and a handler is registered.
final class ActivationInbox: Sendable {
    typealias Handler = @Sendable (_ name: String, _ payload: [UInt8]) async throws -> Void

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
                    try await handler.gate.call { try await handler.body(request.name, request.payload) }
                }
            }
        }
    }
}

extension Lifecycle {
    /// Registers a handler for activation requests, including requests that came before.
    ///
    /// Each request is delivered once, as soon as the process is active.
    ///
    /// - Parameters:
    ///   - name: name of the handler, for reports.
    ///   - body: receives the name of the request and the data that belongs to it.
    @discardableResult
    public func onActivation(
        _ name: String, _ body: @escaping @Sendable (_ request: String, _ payload: [UInt8]) async throws -> Void
    ) -> Registration {
        let registration = activations.add(name, body)
        if state == .active { threads.run { await self.deliverActivations() } }
        return registration
    }

    /// Brings the process to the front and delivers a request there to show or serve something at once. Launches the
    /// process first if needed.
    ///
    /// A request is an administrator's command, the first byte on an activated socket or a link (C74).
    ///
    /// - Parameters:
    ///   - request: name of the request.
    ///   - payload: data that belongs to the request.
    /// - Throws: `LifecycleError` once the process has terminated, or if 1,024 requests wait already.
    public func activate(_ request: String, payload: [UInt8] = []) async throws {
        guard activations.post(ActivationRequest(name: request, payload: payload)) else {
            throw LifecycleError(
                "cannot queue activation \"\(request)\" because \(ActivationInbox.capacity) wait already, which is the limit; check why the process is not active"
            )
        }
        try await enterForeground(cause: .operator)
        if state == .active { await deliverActivations() }
    }

    /// Activates the process for a thread that waits for the outcome. Needs no cooperative pool, which such threads
    /// may have filled.
    package func activate(
        _ request: String, payload: [UInt8], whenDone: @escaping @Sendable (Result<Void, any Error>) -> Void
    ) {
        threads.run {
            let outcome: Result<Void, any Error>
            do { outcome = .success(try await self.activate(request, payload: payload)) } catch {
                outcome = .failure(error)
            }
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
