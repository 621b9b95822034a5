import Synchronization

/// The result delivered to callers that wait for another caller's load.
enum LoadOutcome<Value: Sendable>: Sendable {
    case value(Value)
    case failure(any Error)
    /// The load of many keys returned nothing for this key.
    case absent
    /// The loading caller was cancelled: this waiter takes over the load.
    case yours
    /// The loading caller was cancelled, or found a value that is gone again. Ask again: another caller may be loading
    /// now, or none.
    case again
    /// The waiter itself was cancelled.
    case cancelled
}

/// A caller in line: a suspended task or a parked thread. The first call that completes the waiter wins.
final class LoadWaiter<Value: Sendable>: Sendable {
    private enum State {
        case new
        case suspended(CheckedContinuation<LoadOutcome<Value>, Never>)
        case parked(Parker)
        case completed(LoadOutcome<Value>)
    }

    private let state = Mutex(State.new)
    /// True if the waiter takes over the load when its turn comes.
    private let mayLead: Bool

    init(mayLead: Bool) { self.mayLead = mayLead }

    func wait() async -> LoadOutcome<Value> {
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                if let early = completed(or: .suspended(continuation)) { continuation.resume(returning: early) }
            }
        } onCancel: {
            _ = complete(.cancelled)
        }
    }

    /// Blocks the calling thread until there is an outcome.
    func park() -> LoadOutcome<Value> {
        let parker = Parker()
        while true {
            if let outcome = completed(or: .parked(parker)) { return outcome }
            parker.park()
        }
    }

    private func completed(or waiting: State) -> LoadOutcome<Value>? {
        let before = state.withLock { state in
            let before = state
            if case .completed = state {} else { state = waiting }
            return before
        }
        if case .completed(let outcome) = before { return outcome }
        return nil
    }

    /// Completes the waiter with `outcome`. Returns false if the waiter was completed before.
    func complete(_ outcome: LoadOutcome<Value>) -> Bool {
        let before = state.withLock { state in
            let before = state
            if case .completed = state {} else { state = .completed(outcome) }
            return before
        }
        switch before {
        case .new: return true
        case .suspended(let continuation):
            continuation.resume(returning: outcome)
            return true
        case .parked(let parker):
            parker.unpark()
            return true
        case .completed: return false
        }
    }

    /// True if the waiter has been completed.
    var isCompleted: Bool {
        state.withLock { state in
            if case .completed = state { true } else { false }
        }
    }

    /// Offers the load to the waiter. Returns false if another caller must take over the load.
    func offer() -> Bool {
        guard mayLead else {
            _ = complete(.again)
            return false
        }
        return complete(.yours)
    }
}

/// Identifies a running load. Code within the load, child tasks included, finds the token in a task-local value.
final class LoadToken: Sendable {
    @TaskLocal static var current: LoadToken?

    private let outer: LoadToken?
    init() { outer = Self.current }

    func isWithin(_ other: LoadToken) -> Bool {
        var token: LoadToken? = self
        while let here = token {
            if here === other { return true }
            token = here.outer
        }
        return false
    }
}

/// An error thrown when a load asks the cache for the same key, which would wait for itself for ever.
package struct RecursiveLoadError: Error, Sendable, CustomStringConvertible {
    /// A message that names the key.
    package let description: String

    init(_ key: some Sendable) {
        description = """
            cannot load the key \(key) because value(forKey:orLoad:) was called from within the load of that key, which would wait for itself; \
            make the value without the cache, or read it with value(forKey:)
            """
    }
}

/// A first-in, first-out queue of callers that wait for a load. Cancelled callers are removed as the queue grows.
struct LoadLine<Value: Sendable> {
    typealias Waiter = LoadWaiter<Value>

    /// `nil` before `first`.
    private var line: [Waiter?] = []
    private var first = 0
    private var tidiesAt = leastToTidy
    private static var leastToTidy: Int { 64 }

    /// Number of callers in line, including cancelled callers that are not removed yet.
    var count: Int { line.count - first }

    var waiters: [Waiter] { line[first...].compactMap { $0 } }

    /// Appends `waiter`.
    ///
    /// - Returns: cancelled callers that were removed from the line; release them outside any lock.
    /// - Complexity: O(1), amortized. Cancelled callers are removed each time the line has doubled. Even if a
    ///   load hangs while callers give up and retry, the line holds at most twice the callers that still wait.
    mutating func append(_ waiter: Waiter) -> [Waiter] {
        var gone: [Waiter] = []
        if line.count >= tidiesAt {
            var kept: [Waiter?] = []
            for waiter in waiters { if waiter.isCompleted { gone.append(waiter) } else { kept.append(waiter) } }
            (line, first) = (kept, 0)
            tidiesAt = max(Self.leastToTidy, line.count * 2)
        }
        line.append(waiter)
        return gone
    }

    /// Removes and returns the first caller; `nil` if there is none.
    ///
    /// - Complexity: O(1).
    mutating func popFirst() -> Waiter? {
        guard first < line.count else { return nil }
        defer {
            line[first] = nil
            first += 1
        }
        return line[first]
    }
}

/// Outcomes and times of a cache's loads.
struct LoadRecord: ~Copyable, Sendable {
    // Relaxed everywhere: numbers that publish nothing else. Read one after another, they may differ by the loads
    // that end meanwhile.
    private let loads = Atomic<Int>(0)
    private let failures = Atomic<Int>(0)
    private let nanoseconds = Atomic<Int64>(0)
    private let rate = Atomic<UInt64>(RebuildRate().bits)

    /// Adds a load that made values with a total cost of `bytes`.
    func add(_ took: Duration, bytes: Int) {
        loads.wrappingAdd(1, ordering: .relaxed)
        nanoseconds.wrappingAdd(took.inNanoseconds, ordering: .relaxed)
        var bits = rate.load(ordering: .relaxed)
        while true {
            var next = RebuildRate(bits: bits)
            next.add(took, bytes: bytes)
            let (exchanged, now) = rate.weakCompareExchange(expected: bits, desired: next.bits, ordering: .relaxed)
            if exchanged { return }
            bits = now
        }
    }

    /// Runs a load, and adds the load with the bytes that `note` finds in the values.
    func timing<Loaded, Noted>(
        _ time: Timekeeper, _ load: () async throws -> Loaded, note: (Loaded) -> (noted: Noted, bytes: Int)
    ) async throws -> Noted {
        let began = time.elapsed()
        do { return noted(try await load(), time.elapsed() - began, note) } catch {
            failures.wrappingAdd(1, ordering: .relaxed)
            throw error
        }
    }

    /// Runs a blocking load, in the same way.
    func timing<Loaded, Noted>(
        _ time: Timekeeper, now load: () throws -> Loaded, note: (Loaded) -> (noted: Noted, bytes: Int)
    ) throws -> Noted {
        let began = time.elapsed()
        do { return noted(try load(), time.elapsed() - began, note) } catch {
            failures.wrappingAdd(1, ordering: .relaxed)
            throw error
        }
    }

    private func noted<Loaded, Noted>(
        _ loaded: Loaded, _ took: Duration, _ note: (Loaded) -> (noted: Noted, bytes: Int)
    ) -> Noted {
        let (noted, bytes) = note(loaded)
        add(took, bytes: bytes)
        return noted
    }

    func copy(into statistics: inout CacheStatistics) {
        statistics.loads = loads.load(ordering: .relaxed)
        statistics.loadFailures = failures.load(ordering: .relaxed)
        statistics.loadTime = .nanoseconds(nanoseconds.load(ordering: .relaxed))
    }

    var nanosecondsPerByte: Double? { RebuildRate(bits: rate.load(ordering: .relaxed)).nanosecondsPerByte }
}
