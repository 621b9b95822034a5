import Synchronization

/// Something that is to be shown or served at once: an administrator's command, the first byte on an activated socket, a link (C74).
public struct ActivationRequest: Sendable, Hashable {
    /// What is asked for.
    public var name: String
    /// What belongs to it.
    public var payload: [UInt8]

    /// A request of that name.
    public init(_ name: String, payload: [UInt8] = []) {
        self.name = name
        self.payload = payload
    }
}

/// Requests on their way to who answers them: kept until the process is active and somebody has said that it answers.
final class ActivationInbox: Sendable {
    typealias Handler = @Sendable (ActivationRequest) async throws -> Void

    private struct State {
        var handlers: [(id: UInt64, name: String, gate: AsyncCallGate, body: Handler)] = []
        var waiting: [ActivationRequest] = []
        var nextID: UInt64 = 0
    }

    private let state = Mutex(State())
    /// More are refused: who activates a process that never comes up must hear of it.
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

    /// Keeps a request; false if too many wait.
    func post(_ request: ActivationRequest) -> Bool {
        state.withLock { state in
            guard state.waiting.count < Self.capacity else { return false }
            state.waiting.append(request)
            return true
        }
    }

    /// What waits, as calls, each request to every handler; nothing while nobody answers.
    func take() -> [FanOut.Handler] {
        let (handlers, waiting) = state.withLock { state in
            guard !state.handlers.isEmpty else { return (state.handlers, [] as [ActivationRequest]) }
            defer { state.waiting = [] }
            return (state.handlers, state.waiting)
        }
        return waiting.flatMap { request in
            handlers.map { handler in
                FanOut.Handler(name: "\(handler.name) (\(request.name))") { try await handler.gate.call { try await handler.body(request) } }
            }
        }
    }
}

extension Lifecycle {
    /// Answers activation requests, also those that came before: each is delivered once, as soon as the process is active.
    @discardableResult
    public func onActivation(_ name: String, _ body: @escaping @Sendable (ActivationRequest) async throws -> Void) -> Registration {
        let registration = activations.add(name, body)
        if state == .active { threads.run { await self.deliverActivations() } }
        return registration
    }

    /// Brings the process to the front and has `request` answered there. Before the launch it launches.
    ///
    /// - Throws: `LifecycleError` once the process has terminated, or if 1,024 requests wait already.
    public func activate(_ request: ActivationRequest) async throws {
        guard activations.post(request) else {
            throw LifecycleError(
                "activation \"\(request.name)\" is one more than the \(ActivationInbox.capacity) that may wait; is the process kept from being active?"
            )
        }
        try await enterForeground(cause: .operator)
        if state == .active { await deliverActivations() }
    }

    /// The same for a thread that waits for the outcome: nothing of it needs the cooperative pool, which that thread's like may have filled.
    package func activate(_ request: ActivationRequest, whenDone: @escaping @Sendable (Result<Void, any Error>) -> Void) {
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
        book(report)
    }
}
