import Synchronization

/// One load a key at a time, however many ask, whether they wait in a task or block a thread.
///
/// No task of its own: the first caller loads in its own, the rest wait for it. If that caller is cancelled the load is
/// handed to the next in line, so one client going away fails nobody else.
final class SingleFlight<Key: Hashable & Sendable, Value: Sendable>: Sendable {
    typealias Waiter = LoadWaiter<Value>

    /// A load and the line behind it.
    final class Flight: Sendable {
        struct State {
            var line = LoadLine<Value>()
            /// Who loads; `nil` between one that gave up and the next.
            var leader: LoadToken?
        }
        /// Taken under the lock of `flights` only, which makes this one free at all times.
        let state = Mutex(State())
    }

    /// What somebody who asks for a key has to do.
    enum Turn {
        case lead(Flight)
        case wait(Waiter, Flight)
        /// Nothing: it is the load of that key itself that asks.
        case isOwn
    }

    private let flights = Mutex<[Key: Flight]>([:])

    /// The value that somebody else loads, or else the one that `load` makes.
    ///
    /// - Throws: what the load throws; `RecursiveLoadError` within the load of that very key; `CancellationError`.
    func value(forKey key: Key, load: () async throws -> Value) async throws -> Value {
        while true {
            switch turn(key) {
            case .isOwn: throw RecursiveLoadError(key)
            case .lead(let flight): return try await lead(flight, key, load)
            case .wait(let waiter, let flight):
                switch await waiter.wait() {
                case .value(let value): return value
                case .failure(let error): throw error
                case .cancelled: throw CancellationError()
                case .yours: return try await lead(flight, key, load)
                case .absent, .again: continue
                }
            }
        }
    }

    /// The same for a caller without a task, who blocks its thread.
    func value(forKey key: Key, loadNow load: () throws -> Value) throws -> Value {
        while true {
            switch turn(key) {
            case .isOwn: throw RecursiveLoadError(key)
            case .lead(let flight): return try lead(flight, key, loadNow: load)
            case .wait(let waiter, let flight):
                switch waiter.park() {
                case .value(let value): return value
                case .failure(let error): throw error
                case .cancelled: throw CancellationError()
                case .yours: return try lead(flight, key, loadNow: load)
                case .absent, .again: continue
                }
            }
        }
    }

    /// Whoever asks for `key` from now on loads anew; those in line get what is being loaded.
    func forget(_ key: Key) {
        let forgotten = flights.withLock { flights in flights.index(forKey: key).map { flights.remove(at: $0) } }
        withExtendedLifetime(forgotten) {}
    }

    /// How many wait for the load of `key`; `nil` if none is under way. Such as were cancelled are counted until the line is tidied.
    func lineLength(of key: Key) -> Int? { flights.withLock { flights in flights[key]?.state.withLock { $0.line.count } } }

    // MARK: Entering

    private func turn(_ key: Key) -> Turn {
        let own = LoadToken.current
        let (turn, gone): (Turn, [Waiter]) = flights.withLock { flights in
            guard let flight = flights[key] else {
                let flight = Flight()
                flights[key] = flight
                return (.lead(flight), [])
            }
            return flight.state.withLock { state in
                if let leader = state.leader, own?.isWithin(leader) ?? false { return (.isOwn, []) }
                let waiter = Waiter(mayLead: true)
                let gone = state.line.append(waiter)
                return (.wait(waiter, flight), gone)
            }
        }
        return withExtendedLifetime(gone) { turn }
    }

    /// The same for many keys at once; none is entered if one of them is being loaded by who asks.
    private func turns(_ keys: [Key]) throws -> [(key: Key, turn: Turn)] {
        let own = LoadToken.current
        var recursion: Key?, gone: [Waiter] = []
        defer { withExtendedLifetime(gone) {} }
        let turns: [(key: Key, turn: Turn)] = flights.withLock { flights in
            recursion = keys.first { key in
                flights[key]?.state.withLock { state in state.leader.map { own?.isWithin($0) ?? false } ?? false } ?? false
            }
            guard recursion == nil else { return [] }
            return keys.map { key in
                if let flight = flights[key] {
                    let waiter = Waiter(mayLead: false)
                    gone += flight.state.withLock { $0.line.append(waiter) }
                    return (key, .wait(waiter, flight))
                }
                let flight = Flight()
                flights[key] = flight
                return (key, .lead(flight))
            }
        }
        if let recursion { throw RecursiveLoadError(recursion) }
        return turns
    }

    // MARK: Leading

    private func lead(_ flight: Flight, _ key: Key, _ load: () async throws -> Value) async throws -> Value {
        let token = take([(key, flight)])
        do {
            let value = try await LoadToken.$current.withValue(token) { try await load() }
            finish(flight, key, .value(value))
            return value
        } catch {
            if Task.isCancelled { handOver(flight, key) } else { finish(flight, key, .failure(error)) }
            throw error
        }
    }

    private func lead(_ flight: Flight, _ key: Key, loadNow load: () throws -> Value) throws -> Value {
        let token = take([(key, flight)])
        do {
            let value = try LoadToken.$current.withValue(token) { try load() }
            finish(flight, key, .value(value))
            return value
        } catch {
            if Task.isCancelled { handOver(flight, key) } else { finish(flight, key, .failure(error)) }
            throw error
        }
    }

    private func take(_ led: [(key: Key, flight: Flight)]) -> LoadToken {
        let token = LoadToken()
        flights.withLock { _ in for (_, flight) in led { flight.state.withLock { $0.leader = token } } }
        return token
    }

    private func finish(_ flight: Flight, _ key: Key, _ outcome: LoadOutcome<Value>) {
        let (line, finished) = flights.withLock { flights in
            (
                flight.state.withLock { state in
                    defer { state = .init() }
                    return state
                }.line.waiters, remove(flight, key, from: &flights)
            )
        }
        // The key that the table had leaves the lock before it may die.
        withExtendedLifetime(finished) { for waiter in line { _ = waiter.settle(outcome) } }
    }

    private func remove(_ flight: Flight, _ key: Key, from flights: inout [Key: Flight]) -> (key: Key, value: Flight)? {
        guard let place = flights.index(forKey: key), flights[place].value === flight else { return nil }
        return flights.remove(at: place)
    }

    /// Gives the load to the first in line that still wants it; the line stays behind it.
    private func handOver(_ flight: Flight, _ key: Key) {
        while true {
            let (next, finished) = flights.withLock { flights in
                let next: Waiter? = flight.state.withLock { state in
                    state.leader = nil
                    return state.line.popFirst()
                }
                return (next, next == nil ? remove(flight, key, from: &flights) : nil)
            }
            let isOver = withExtendedLifetime(finished) { next?.offer() ?? true }
            if isOver { return }
        }
    }

    // MARK: Many at once

    /// The values under `keys`, all different: what others load, and what one call of `load` makes of the rest. A key that whoever loads it finds nothing for is
    /// not in the result.
    ///
    /// While it waits for others it holds up nobody: its own load is over by then, and it takes over nobody else's. If somebody whom it waits for is cancelled,
    /// and nobody in line takes over, it loads once more.
    ///
    /// - Parameter known: what has been loaded meanwhile.
    func values(forKeys keys: [Key], known: (Key) -> Value?, load: ([Key]) async throws -> [Key: Value]) async throws -> [Key: Value] {
        var found: [Key: Value] = [:], wanted = keys
        while !wanted.isEmpty {
            var led: [(key: Key, flight: Flight)] = [], joined: [(key: Key, waiter: Waiter)] = []
            for (key, turn) in try turns(wanted) {
                switch turn {
                case .lead(let flight): led.append((key, flight))
                case .wait(let waiter, _): joined.append((key, waiter))
                case .isOwn: break
                }
            }
            wanted = []
            do {
                found.merge(try await lead(led, known, load)) { $1 }
                for (key, waiter) in joined {
                    switch await waiter.wait() {
                    case .value(let value): found[key] = value
                    case .failure(let error): throw error
                    case .cancelled: throw CancellationError()
                    case .absent: break
                    case .again, .yours: wanted.append(key)
                    }
                }
            } catch {
                for (_, waiter) in joined { _ = waiter.settle(.cancelled) }
                throw error
            }
        }
        return found
    }

    private func lead(
        _ led: [(key: Key, flight: Flight)], _ known: (Key) -> Value?, _ load: ([Key]) async throws -> [Key: Value]
    ) async throws -> [Key: Value] {
        var found: [Key: Value] = [:], missing: [(key: Key, flight: Flight)] = []
        let token = take(led)
        for (key, flight) in led {
            if let value = known(key) {
                found[key] = value
                finish(flight, key, .value(value))
            } else {
                missing.append((key, flight))
            }
        }
        guard !missing.isEmpty else { return found }
        do {
            let loaded = try await LoadToken.$current.withValue(token) { try await load(missing.map(\.key)) }
            for (key, flight) in missing {
                found[key] = loaded[key]
                finish(flight, key, loaded[key].map { .value($0) } ?? .absent)
            }
            return found
        } catch {
            let isCancelled = Task.isCancelled
            for (key, flight) in missing { if isCancelled { handOver(flight, key) } else { finish(flight, key, .failure(error)) } }
            throw error
        }
    }
}
