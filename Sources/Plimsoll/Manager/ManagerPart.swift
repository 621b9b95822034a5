import Synchronization

/// A part that joins a `ResourceManager`: prepares when the manager runs, follows the level and the limit, takes part
/// in the actions of the ladder, and finishes at the end.
///
/// The manager knows `Lifecycle` of PlimsollLifecycle only through this protocol. Every requirement has a default that
/// does nothing. The manager retains its parts.
public protocol ManagerPart: AnyObject, Sendable {
    /// Called once, on the thread that joined this part, right after the part has joined.
    func joined()

    /// Called once, on a thread of the manager, when the manager begins to run; for a part that joins later, at once.
    func prepare() async

    /// True if the rung `quiesce` of the ladder has an effect on this part. Read by the pressure loop.
    var canQuiesce: Bool { get }

    /// Called on the delivery thread with each change of the level that readings support, and of the rung `quiesce`.
    ///
    /// - Parameters:
    ///   - level: the level; `.normal` in a dry run.
    ///   - isQuiescing: true from the rung `quiesce` until memory is available again; false in a dry run.
    func admit(at level: PressureLevel, isQuiescing: Bool)

    /// Called by the pressure loop with the limit of each reading. Must neither block nor allocate.
    func noticed(limit: ByteCount?)

    /// Called by the pressure loop when it has ended. Must not block.
    func loopEnded()

    /// Called when a shutdown begins: the process is no longer ready for work. Must not block.
    func refuseWork()

    /// Finishes: stops work, saves state, cleans up.
    ///
    /// - Returns: the names of the handlers that had not ended within the budget.
    func finish(_ end: ManagerEnd) async -> [String]

    /// The signals of this part for `ResourceManager.capabilities`.
    var signals: [Capabilities.Signal] { get }

    /// Adds this part's state to a snapshot.
    func describe(in status: inout ManagerStatus)
}

/// The end of a process, as a `ManagerPart` takes part in it.
public struct ManagerEnd: Sendable {
    /// True if the rung `terminate` of the ladder ends the process; false after `ResourceManager.run()` was cancelled or
    /// stopped.
    public let isForPressure: Bool
    /// Time until the end, at the call of `ManagerPart.finish(_:)`.
    public let budget: Duration
    /// Waits for the saves of `ResourceManager.beforeTermination(_:_:)`, which run meanwhile, at most for the given
    /// time.
    public let waitForSaves: @Sendable (_ limit: Duration) async -> Void
}

extension ManagerPart {
    public func joined() {}
    public func prepare() async {}
    public var canQuiesce: Bool { false }
    public func admit(at level: PressureLevel, isQuiescing: Bool) {}
    public func noticed(limit: ByteCount?) {}
    public func loopEnded() {}
    public func refuseWork() {}
    public func finish(_ end: ManagerEnd) async -> [String] { [] }
    public var signals: [Capabilities.Signal] { [] }
    public func describe(in status: inout ManagerStatus) {}
}

extension ResourceManager {
    /// Returns the manager's part of type `Part`, which `make` creates if there is none yet.
    ///
    /// Two threads may both create a part; one part joins, and both threads receive that one.
    public func part<Part: ManagerPart>(_ type: Part.Type = Part.self, orJoin make: () -> Part) -> Part {
        let (part, joinTime) = parts.joined.part(orAdd: make)
        if joinTime != .known { part.joined() }
        if joinTime == .late { parts.threads.run { await part.prepare() } }
        return part
    }
}

/// The parts that have joined a manager, in order.
final class JoinedParts: Sendable {
    /// The time at which a part joined, relative to the manager's run.
    enum JoinTime {
        /// The part had joined before.
        case known
        /// The part has joined now, before the run.
        case early
        /// The part has joined now, after the run began.
        case late
    }

    private let state = Mutex<(parts: [any ManagerPart], hasRun: Bool)>(([], false))

    var all: [any ManagerPart] { state.withLock { $0.parts } }

    /// Releases the parts, after the lock.
    func removeAll() { _ = state.withLock { exchange(&$0.parts, []) } }

    /// Marks the begin of the run, and returns the parts to prepare. Later parts are `late`.
    func beginRun() -> [any ManagerPart] {
        state.withLock { state in
            state.hasRun = true
            return state.parts
        }
    }

    /// Calls `body` with each part, outside the lock.
    func forEach(_ body: (any ManagerPart) -> Void) {
        // By index: without optimization, an iterator allocates, and the pressure loop calls this method.
        let parts = all
        var index = 0
        while index < parts.count {
            body(parts[index])
            index += 1
        }
    }

    /// Returns the part of that type. Calls `make` outside the lock if there is none.
    func part<Part: ManagerPart>(orAdd make: () -> Part) -> (part: Part, joinTime: JoinTime) {
        if let part = Self.first(Part.self, of: all) { return (part, .known) }
        let made = make()
        return state.withLock { state in
            if let part = Self.first(Part.self, of: state.parts) { return (part, .known) }
            state.parts.append(made)
            return (made, state.hasRun ? .late : .early)
        }
    }

    /// Returns the first part of type `Part`. A lazy sequence would have the runtime look up metadata at each call.
    private static func first<Part: ManagerPart>(_ type: Part.Type, of parts: [any ManagerPart]) -> Part? {
        for part in parts {
            if let part = part as? Part { return part }
        }
        return nil
    }
}

/// Passes the level on to the joined parts, on the delivery worker: the members behind them are application code.
final class AdmissionRelay: Sendable {
    private struct State: Equatable {
        var level = PressureLevel.normal
        var isQuiescing = false
    }

    private let posted = Mutex(State())
    private let applied = Mutex(State())
    private let joined: JoinedParts

    init(_ joined: JoinedParts) { self.joined = joined }

    /// Sets the level for the parts. Returns true if the delivery worker must apply a change. Allocates nothing.
    func post(_ level: PressureLevel, isQuiescing: Bool) -> Bool {
        let state = State(level: level, isQuiescing: isQuiescing)
        return posted.withLock { exchange(&$0, state) != state }
    }

    /// Runs on the delivery worker. Returns false if the thread was replaced meanwhile.
    func apply(_ turn: Worker.Turn, time: Timekeeper) -> Bool {
        let state = posted.withLock { $0 }
        let isNews = applied.withLock { exchange(&$0, state) != state }
        guard isNews else { return true }
        return turn.call("quiesce", at: time.elapsed()) {
            joined.forEach { part in
                // A thread that was slow in one part, and replaced, has no news for the parts behind.
                guard applied.withLock({ $0 == state }) else { return }
                part.admit(at: state.level, isQuiescing: state.isQuiescing)
            }
        }
    }
}
