import Synchronization

/// One load a key at a time, however many ask.
///
/// No task of its own: the first caller loads in its own, the rest wait for it. If that caller is cancelled the load is
/// handed to the next in line, so one client going away fails nobody else.
final class SingleFlight<Key: Hashable & Sendable, Value: Sendable>: Sendable {
    private enum Outcome: Sendable {
        case value(Value)
        case failure(any Error)
        /// Whoever loaded was cancelled, or is done: load yourself.
        case yours
        /// The waiter itself was cancelled.
        case cancelled
    }

    /// A caller in line. Whoever settles it first wins.
    private final class Waiter: Sendable {
        private enum State {
            case new
            case waiting(CheckedContinuation<Outcome, Never>)
            case settled(Outcome)
        }

        private let state = Mutex(State.new)

        func wait() async -> Outcome {
            await withTaskCancellationHandler {
                await withCheckedContinuation { continuation in
                    let early: Outcome? = state.withLock { state in
                        if case .settled(let outcome) = state { return outcome }
                        state = .waiting(continuation)
                        return nil
                    }
                    if let early { continuation.resume(returning: early) }
                }
            } onCancel: {
                _ = settle(.cancelled)
            }
        }

        /// False if it had been settled before.
        func settle(_ outcome: Outcome) -> Bool {
            let before = state.withLock { state in
                let before = state
                if case .settled = state {} else { state = .settled(outcome) }
                return before
            }
            switch before {
            case .new: return true
            case .waiting(let continuation):
                continuation.resume(returning: outcome)
                return true
            case .settled: return false
            }
        }
    }

    /// A load and the line behind it.
    private final class Flight: Sendable {
        /// Added to and taken from under the lock of `flights` only, which makes this one free at all times.
        let line = Mutex<[Waiter]>([])
    }

    private let flights = Mutex<[Key: Flight]>([:])

    func value(forKey key: Key, load: () async throws -> Value) async throws -> Value {
        let (flight, waiter) = flights.withLock { flights in
            guard let flight = flights[key] else {
                let flight = Flight()
                flights[key] = flight
                return (flight, nil as Waiter?)
            }
            let waiter = Waiter()
            flight.line.withLock { $0.append(waiter) }
            return (flight, waiter)
        }
        switch await waiter?.wait() ?? .yours {
        case .value(let value): return value
        case .failure(let error): throw error
        case .cancelled: throw CancellationError()
        case .yours: return try await lead(flight, key, load)
        }
    }

    /// Whoever asks for `key` from now on loads anew; those in line get what is being loaded.
    func forget(_ key: Key) {
        let flight = flights.withLock { $0.removeValue(forKey: key) }
        withExtendedLifetime(flight) {}
    }

    private func lead(_ flight: Flight, _ key: Key, _ load: () async throws -> Value) async throws -> Value {
        do {
            let value = try await load()
            finish(flight, key, .value(value))
            return value
        } catch {
            if Task.isCancelled { handOver(flight, key) } else { finish(flight, key, .failure(error)) }
            throw error
        }
    }

    private func finish(_ flight: Flight, _ key: Key, _ outcome: Outcome) {
        let line = flights.withLock { flights in
            if flights[key] === flight { flights[key] = nil }
            return flight.line.withLock { line in
                defer { line = [] }
                return line
            }
        }
        for waiter in line { _ = waiter.settle(outcome) }
    }

    /// Gives the load to the first in line that still wants it; the line stays behind it.
    private func handOver(_ flight: Flight, _ key: Key) {
        while true {
            let next: Waiter? = flights.withLock { flights in
                let next = flight.line.withLock { $0.isEmpty ? nil : $0.removeFirst() }
                if next == nil, flights[key] === flight { flights[key] = nil }
                return next
            }
            guard let next, !next.settle(.yours) else { return }
        }
    }
}
