import Synchronization

/// The load that made a value, as far as the load decides whether the value is kept. Restoring an entry of a snapshot
/// is a load as well.
@usableFromInline
struct LoadOrigin: Sendable {
    /// The flight of the key; `nil` for a refresh, or a restored value.
    var flight: (any RevocableLoad)?
    /// Mark of the entry that a refresh is to replace; `nil` for a load without an entry.
    var claim: Int64?

    /// True if the value must not be kept.
    var isRevoked: Bool { flight?.isRevoked ?? false }
}

/// A load whose value must not be kept once the key was inserted or removed, or a tag purged.
protocol RevocableLoad: AnyObject, Sendable {
    var isRevoked: Bool { get }
}

/// Single flight: at most one load per key at a time, for all callers, waiting in a task or blocking a thread.
///
/// No separate task: the first caller loads in its own task, and the others wait. If that caller is cancelled, the
/// next in line takes over the load, so one cancelled client fails no other.
final class SingleFlight<Key: Hashable & Sendable, Value: Sendable>: Sendable {
    typealias Waiter = LoadWaiter<Value>

    /// A load and the line of callers behind that load.
    final class Flight: RevocableLoad {
        struct State {
            var line = LoadLine<Value>()
            /// Token of the loading caller; `nil` between a caller that gave up and the next.
            var leader: LoadToken?
            /// Tags under which the loading caller keeps the value.
            var tags: [String] = []
        }
        /// Locked only under the lock of `flights`, so this lock is always free.
        let state = Mutex(State())
        // Relaxed: the revoking thread sets the flag and then takes the lock under which the value would be kept. The
        // inserting thread reads the flag under that lock.
        private let revoked = Atomic<Bool>(false)

        /// True if the key was inserted or removed, or a tag purged, after the load began. The value must not be kept
        /// then.
        var isRevoked: Bool { revoked.load(ordering: .relaxed) }
        fileprivate func revoke() { revoked.store(true, ordering: .relaxed) }
    }

    /// The action required of a caller that asks for a key.
    enum Turn {
        case lead(Flight)
        case wait(Waiter, Flight)
        /// No action: the load of that very key asks.
        case isOwn
    }

    /// The loads that later callers may join: those that are not revoked.
    let flights = Mutex<[Key: Flight]>([:])
    // With a sequentially consistent fence on each side. A load is counted before its source is read. A caller that
    // removes a key has changed the source before, and then reads the count. Of two such threads at least one sees what
    // the other wrote: the load is revoked, or reads the changed source. A revoked load counts until it has ended,
    // because it may be about to keep its value. Releasing: a caller that finds no load sees the values that were kept.
    private let count = Atomic<Int>(0)

    /// True if any load is in progress, revoked or not.
    var isBusy: Bool {
        atomicMemoryFence(ordering: .sequentiallyConsistent)
        return count.load(ordering: .acquiring) > 0
    }

    /// Returns the value that another caller loads or has loaded, or else the value that `load` makes.
    ///
    /// - Parameters:
    ///   - tags: tags under which the value is kept.
    ///   - known: reads the value from the cache. Another caller may have loaded one after this caller's miss.
    ///   - load: makes the value; gets the flight, which tells whether the value may be kept.
    /// - Throws: errors of the load; `RecursiveLoadError` within the load of that very key; `CancellationError`.
    func value(
        forKey key: Key, tags: [String], known: () -> Value?, load: (Flight) async throws -> Value
    ) async throws -> Value {
        while true {
            switch turn(key) {
            case .isOwn: throw RecursiveLoadError(key)
            case .lead(let flight): return try await lead(flight, key, tags, known, load)
            case .wait(let waiter, let flight):
                switch await waiter.wait() {
                case .value(let value): return value
                case .failure(let error): throw error
                case .cancelled: throw CancellationError()
                case .yours: return try await lead(flight, key, tags, known, load)
                case .absent, .again: continue
                }
            }
        }
    }

    /// Returns the value as above, for a caller without a task. Blocks the calling thread.
    func value(
        forKey key: Key, tags: [String], known: () -> Value?, loadNow load: (Flight) throws -> Value
    ) throws -> Value {
        while true {
            switch turn(key) {
            case .isOwn: throw RecursiveLoadError(key)
            case .lead(let flight): return try lead(flight, key, tags, known, loadNow: load)
            case .wait(let waiter, let flight):
                switch waiter.park() {
                case .value(let value): return value
                case .failure(let error): throw error
                case .cancelled: throw CancellationError()
                case .yours: return try lead(flight, key, tags, known, loadNow: load)
                case .absent, .again: continue
                }
            }
        }
    }

    /// Revokes the load of `key`: its value must not be kept, and later callers start a new load. Callers in line still
    /// get the value.
    ///
    /// Remove the value from the cache after this call: until then the load may still keep its value.
    func revoke(_ key: Key) {
        let revoked = flights.withLock { flights -> (key: Key, value: Flight)? in
            guard let place = flights.index(forKey: key) else { return nil }
            flights[place].value.revoke()
            return flights.remove(at: place)
        }
        withExtendedLifetime(revoked) {}
    }

    /// Revokes all loads, or those whose value would be kept under `tag`.
    ///
    /// - Complexity: O(loads in progress).
    func revokeAll(tag: String? = nil) {
        let revoked = flights.withLock { flights in
            let revoked = flights.filter { flight in
                tag.map { tag in flight.value.state.withLock { $0.tags.contains(tag) } } ?? true
            }
            for (key, flight) in revoked {
                flight.revoke()
                flights[key] = nil
            }
            return revoked
        }
        withExtendedLifetime(revoked) {}
    }

    /// Returns the number of callers that wait for the load of `key`; `nil` if none is in progress. Cancelled
    /// callers count until they are removed from the line.
    func lineLength(of key: Key) -> Int? {
        flights.withLock { flights in flights[key]?.state.withLock { $0.line.count } }
    }

    // MARK: Entering

    private func turn(_ key: Key) -> Turn {
        let own = LoadToken.current
        let (turn, gone): (Turn, [Waiter]) = flights.withLock { flights in
            guard let flight = flights[key] else {
                return (.lead(add(key, to: &flights)), [])
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

    /// Returns the turn for each of many keys. Enters no line if the caller itself is loading one of the keys.
    private func turns(_ keys: [Key]) throws -> [(key: Key, turn: Turn)] {
        let own = LoadToken.current
        var recursion: Key?, gone: [Waiter] = []
        defer { withExtendedLifetime(gone) {} }
        let turns: [(key: Key, turn: Turn)] = flights.withLock { flights in
            recursion = keys.first { key in
                flights[key]?.state.withLock { state in state.leader.map { own?.isWithin($0) ?? false } ?? false }
                    ?? false
            }
            guard recursion == nil else { return [] }
            return keys.map { key in
                if let flight = flights[key] {
                    let waiter = Waiter(mayLead: false)
                    gone += flight.state.withLock { $0.line.append(waiter) }
                    return (key, .wait(waiter, flight))
                }
                return (key, .lead(add(key, to: &flights)))
            }
        }
        if let recursion { throw RecursiveLoadError(recursion) }
        return turns
    }

    private func add(_ key: Key, to flights: inout [Key: Flight]) -> Flight {
        let flight = Flight()
        flights[key] = flight
        count.wrappingAdd(1, ordering: .relaxed)
        atomicMemoryFence(ordering: .sequentiallyConsistent)
        return flight
    }

    // MARK: Leading

    private func lead(
        _ flight: Flight, _ key: Key, _ tags: [String], _ known: () -> Value?,
        _ load: (Flight) async throws -> Value
    ) async throws -> Value {
        if let value = finish(flight, key, if: known) { return value }
        let token = take([(key, flight)], tags)
        do {
            let value = try await LoadToken.$current.withValue(token) { try await load(flight) }
            finish(flight, key, .value(value))
            return value
        } catch {
            if Task.isCancelled { handOver(flight, key) } else { finish(flight, key, .failure(error)) }
            throw error
        }
    }

    private func lead(
        _ flight: Flight, _ key: Key, _ tags: [String], _ known: () -> Value?,
        loadNow load: (Flight) throws -> Value
    ) throws -> Value {
        if let value = finish(flight, key, if: known) { return value }
        let token = take([(key, flight)], tags)
        do {
            let value = try LoadToken.$current.withValue(token) { try load(flight) }
            finish(flight, key, .value(value))
            return value
        } catch {
            if Task.isCancelled { handOver(flight, key) } else { finish(flight, key, .failure(error)) }
            throw error
        }
    }

    private func take(_ led: [(key: Key, flight: Flight)], _ tags: [String]) -> LoadToken {
        let token = LoadToken()
        flights.withLock { _ in
            for (_, flight) in led { flight.state.withLock { ($0.leader, $0.tags) = (token, tags) } }
        }
        return token
    }

    private func finish(_ flight: Flight, _ key: Key, _ outcome: LoadOutcome<Value>) {
        for waiter in end(flight, key) { _ = waiter.complete(outcome) }
    }

    /// Ends the flight without a load if `known` returns a value, and returns that value.
    ///
    /// A caller may have joined the line after the value was read, and after an insertion replaced the value. So the
    /// line is closed first, and gets the value of a second reading.
    private func finish(_ flight: Flight, _ key: Key, if known: () -> Value?) -> Value? {
        guard let value = known() else { return nil }
        let line = end(flight, key)
        if !line.isEmpty {
            let outcome = known().map { LoadOutcome.value($0) } ?? .again
            for waiter in line { _ = waiter.complete(outcome) }
        }
        return value
    }

    /// Ends the flight, which no caller can join then. Returns the callers in line.
    private func end(_ flight: Flight, _ key: Key) -> [Waiter] {
        let (line, finished) = flights.withLock { flights in
            (
                flight.state.withLock { state in
                    defer { state = .init() }
                    return state
                }.line.waiters, remove(flight, key, from: &flights)
            )
        }
        // The table's key is destroyed after the lock.
        return withExtendedLifetime(finished) { line }
    }

    /// Counts the flight as over, and takes it out of the table unless it was revoked.
    private func remove(_ flight: Flight, _ key: Key, from flights: inout [Key: Flight]) -> (key: Key, value: Flight)? {
        count.wrappingSubtract(1, ordering: .releasing)
        guard let place = flights.index(forKey: key), flights[place].value === flight else { return nil }
        return flights.remove(at: place)
    }

    /// Hands the load to the first caller in line that still wants the value. The rest of the line stays.
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

    // MARK: Many keys

    /// Returns the values under `keys`, which must be distinct. One call of `load` makes the values that no other
    /// caller loads. Keys without a loaded value are absent from the result.
    ///
    /// Waiting for other callers blocks no other caller: the own load has ended by then, and no other load is taken
    /// over. If a caller waited for is cancelled, and no caller in line takes over, `load` runs once more.
    ///
    /// - Parameters:
    ///   - tags: tags under which the values are kept.
    ///   - known: returns a value that has been loaded meanwhile.
    ///   - load: makes the values; gets the keys with their flights.
    func values(
        forKeys keys: [Key], tags: [String], known: (Key) -> Value?,
        load: ([(key: Key, flight: Flight)]) async throws -> [Key: Value]
    ) async throws -> [Key: Value] {
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
                found.merge(try await lead(led, tags, known, load)) { $1 }
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
                for (_, waiter) in joined { _ = waiter.complete(.cancelled) }
                throw error
            }
        }
        return found
    }

    private func lead(
        _ led: [(key: Key, flight: Flight)], _ tags: [String], _ known: (Key) -> Value?,
        _ load: ([(key: Key, flight: Flight)]) async throws -> [Key: Value]
    ) async throws -> [Key: Value] {
        var found: [Key: Value] = [:], missing: [(key: Key, flight: Flight)] = []
        let token = take(led, tags)
        for (key, flight) in led {
            if let value = finish(flight, key, if: { known(key) }) {
                found[key] = value
            } else {
                missing.append((key, flight))
            }
        }
        guard !missing.isEmpty else { return found }
        do {
            let loaded = try await LoadToken.$current.withValue(token) { try await load(missing) }
            for (key, flight) in missing {
                found[key] = loaded[key]
                finish(flight, key, loaded[key].map { .value($0) } ?? .absent)
            }
            return found
        } catch {
            let isCancelled = Task.isCancelled
            for (key, flight) in missing {
                if isCancelled { handOver(flight, key) } else { finish(flight, key, .failure(error)) }
            }
            throw error
        }
    }
}

extension Sequence where Element: Hashable {
    /// Returns the values that `lookUp` finds, and the keys without one. Duplicates are looked up once.
    func lookedUp<Value>(_ lookUp: (Element) -> Value?) -> (found: [Element: Value], missing: [Element]) {
        var found: [Element: Value] = [:], missing: [Element] = [], asked: Set<Element> = []
        for key in self where asked.insert(key).inserted {
            if let value = lookUp(key) { found[key] = value } else { missing.append(key) }
        }
        return (found, missing)
    }
}
