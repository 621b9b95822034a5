public import Plimsoll
import Synchronization

/// A state store in memory, for tests. State of one run is available to the next manager that gets the same store.
public final class MemoryStateStore: StateStore {
    private struct State {
        var kept: [String: (base: [UInt8], deltas: [[UInt8]])] = [:]
        var aside: [(name: String, reason: String, bytes: [UInt8])] = []
        var writes = 0
        var appends = 0
        var failure: (any Error)?
    }

    private let state = Mutex(State())

    /// Creates an empty store.
    public init() {}

    public func write(_ name: String, _ bytes: [UInt8]) throws {
        try change { state in
            state.writes += 1
            state.kept[name] = (bytes, [])
        }
    }

    public func read(_ name: String) throws -> [UInt8]? { try change { $0.kept[name]?.base } }

    public func remove(_ name: String) throws { try change { $0.kept[name] = nil } }

    public func append(_ delta: [UInt8], to name: String) throws -> Bool {
        try change { state in
            guard let kept = state.kept[name], kept.deltas.count < 64 else { return false }
            state.appends += 1
            state.kept[name]?.deltas.append(delta)
            return true
        }
    }

    public func load(_ name: String) throws -> StoredState {
        try change { $0.kept[name].map { .state(base: $0.base, deltas: $0.deltas) } ?? .absent }
    }

    public func setAside(_ name: String, reason: String) throws {
        try change { state in
            if let kept = state.kept.removeValue(forKey: name) { state.aside.append((name, reason, kept.base)) }
        }
    }

    /// Makes every call throw `error`; `nil` ends the failures.
    public func fail(with error: (any Error)?) { state.withLock { $0.failure = error } }

    /// Number of complete states written so far.
    public var writes: Int { state.withLock { $0.writes } }

    /// Number of deltas appended so far.
    public var appends: Int { state.withLock { $0.appends } }

    /// States set aside, oldest first: the name, the reason, and the bytes last written under the name.
    public var aside: [(name: String, reason: String, bytes: [UInt8])] { state.withLock { $0.aside } }

    /// Names of the stored states.
    public var names: [String] { state.withLock { $0.kept.keys.sorted() } }

    private func change<Result: Sendable>(_ body: (inout State) -> Result) throws -> Result {
        try state.withLock { state in
            if let failure = state.failure { throw failure }
            return body(&state)
        }
    }
}
