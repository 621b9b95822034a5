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
        /// The calls that the last delivery did not begin in time. They come first in the next one.
        var unreached: [FanOut.Handler] = []
        /// Number of calls under way.
        var running = 0
        var nextID: UInt64 = 0
        var start: (@Sendable () -> Void)?

        /// Queues a request. Returns false if too many requests wait.
        mutating func add(_ request: ActivationRequest) -> Bool {
            guard waiting.count + unreached.count < ActivationInbox.capacity else { return false }
            waiting.append(request)
            return true
        }
    }

    private let state = Mutex(State())
    /// The most requests that may wait; more are refused. The sender must learn that a process never becomes active.
    static let capacity = 1024

    /// Sets the closure that starts a delivery if the process is active.
    func connect(_ start: @escaping @Sendable () -> Void) { state.withLock { $0.start = start } }

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
    func post(_ request: ActivationRequest) -> Bool { state.withLock { $0.add(request) } }

    /// Starts a delivery if there is anything to deliver and the process is active.
    func deliver() {
        let start: (@Sendable () -> Void)? = state.withLock { state in
            let isIdle = state.unreached.isEmpty && (state.waiting.isEmpty || state.handlers.isEmpty)
            return isIdle ? nil : state.start
        }
        start?()
    }

    /// Dequeues the waiting requests as calls, each request to every handler, after the calls that were put back.
    /// Requests stay in the queue while there is no handler.
    func take() -> [FanOut.Handler] { take(adding: nil) ?? [] }

    /// Queues `own`, and dequeues as `take()` does, so that no other delivery takes that request. Returns `nil` if too
    /// many requests wait.
    func take(adding own: ActivationRequest?) -> [FanOut.Handler]? {
        var isFull = false
        let (unreached, handlers, waiting) = state.withLock { state in
            if let own { isFull = !state.add(own) }
            let unreached = isFull ? [] : exchange(&state.unreached, [])
            guard !isFull, !state.handlers.isEmpty else {
                return (unreached, state.handlers, [] as [ActivationRequest])
            }
            return (unreached, state.handlers, exchange(&state.waiting, []))
        }
        if isFull { return nil }
        let calls: [FanOut.Handler] = waiting.flatMap { request in
            handlers.map { handler in
                FanOut.Handler(name: "\(handler.name) (\(request.name))") {
                    self.state.withLock { $0.running += 1 }
                    defer { self.ended() }
                    try await handler.gate.call { try await handler.body(request.name, request.payload) }
                }
            }
        }
        return unreached + calls
    }

    /// Keeps calls that a delivery did not begin in time. If as many calls hang as a delivery makes at once, the next
    /// delivery starts when one of them ends, so that they do not block one thread after another.
    func putBack(_ calls: ArraySlice<FanOut.Handler>) {
        let goesOn = state.withLock { state in
            state.unreached += calls
            return state.running < FanOut.Order.forward.width
        }
        if goesOn { deliver() }
    }

    private func ended() {
        let goesOn = state.withLock { state in
            state.running -= 1
            return !state.unreached.isEmpty
        }
        if goesOn { deliver() }
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
        activations.deliver()
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
        try await enterForeground(cause: .operator)
        let own = ActivationRequest(name: request, payload: payload)
        let taken: [FanOut.Handler]?
        // After the steps, so that this call, and no other one, delivers the request and returns when the request is
        // handled. If the process is not active, a later step delivers the request.
        if state == .active {
            taken = activations.take(adding: own)
        } else {
            taken = activations.post(own) ? [] : nil
        }
        guard let calls = taken else {
            throw LifecycleError(
                "cannot queue activation \"\(request)\" because \(ActivationInbox.capacity) wait already, which is the limit; check why the process is not active"
            )
        }
        await deliver(calls)
        // The process may have become active right before the request was queued.
        if calls.isEmpty, state == .active { await deliverActivations() }
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

    func deliverActivations() async { await deliver(activations.take()) }

    private func deliver(_ calls: [FanOut.Handler]) async {
        let deadline = alarms.heartbeat.running + policy.backgroundDeadline
        let outcome = await FanOut.call(calls, .forward, until: deadline, alarms, threads)
        if !outcome.unreached.isEmpty { activations.putBack(calls.suffix(outcome.unreached.count)) }
        guard !outcome.overran.isEmpty || !outcome.failures.isEmpty else { return }
        var report = LifecycleReport(target: .active)
        report.add(outcome)
        recordReport(report)
    }
}
