public import Plimsoll
import Synchronization

/// A set of pressure levels to listen for.
public struct PressureLevelMask: OptionSet, Sendable, Hashable {
    public let rawValue: UInt8

    /// Creates a mask from raw bits.
    public init(rawValue: UInt8) { self.rawValue = rawValue }

    /// `normal`: recovery. No memory need be freed then (T10).
    public static let normal = PressureLevelMask(PressureLevel.normal)
    /// `warning`.
    public static let warning = PressureLevelMask(PressureLevel.warning)
    /// `critical`.
    public static let critical = PressureLevelMask(PressureLevel.critical)

    /// Creates a mask of one level.
    public init(_ level: PressureLevel) { rawValue = 1 << level.rawValue }

    /// Returns true if the mask contains `level`.
    public func contains(_ level: PressureLevel) -> Bool { contains(PressureLevelMask(level)) }
}

/// A sequence of the announced levels in a mask: the lowest of the four routes of a memory warning.
///
///     for await event in manager.levelSource(mask: [.warning, .critical]) { … }
///     let registration = manager.levelSource(mask: .critical).handle { event in … }
///
/// A slow consumer receives only the newest event. The level in force matters, not the path to that level (T9).
public struct LevelSource: AsyncSequence, Sendable {
    /// The levels to listen for.
    public let mask: PressureLevelMask
    private let manager: ResourceManager

    init(_ mask: PressureLevelMask, _ manager: ResourceManager) {
        self.mask = mask
        self.manager = manager
    }

    /// The level in force, also if the mask does not contain that level.
    public var level: PressureLevel { manager.level }

    /// Calls `body` with each event, on the manager's delivery thread.
    @discardableResult
    public func handle(_ body: @escaping @Sendable (PressureEvent) -> Void) -> Registration {
        let mask = mask
        return manager.observe(from: mask.contains(.normal as PressureLevel) ? .normal : .warning, "level source") {
            event in
            if mask.contains(event.level) { body(event) }
        }
    }

    public func makeAsyncIterator() -> AsyncStream<PressureEvent>.Iterator {
        AsyncStream(bufferingPolicy: .bufferingNewest(1)) { continuation in
            let registration = handle { continuation.yield($0) }
            continuation.onTermination = { _ in registration.cancel() }
        }.makeAsyncIterator()
    }
}

extension ResourceManager {
    /// Calls `body` with each warning, before any other observer: the route for the process as a whole, for work
    /// that belongs to no scene.
    ///
    /// A memory warning takes four routes: this one, each active scene, observers and `pressureEvents`, and
    /// `levelSource(mask:)`. The event has the same `id` on all four routes. Code that listens on several routes
    /// can use `OncePerEvent` to do its work once.
    @discardableResult
    public func onMemoryWarning(_ name: String = "memory warning", _ body: @escaping @Sendable (PressureEvent) -> Void)
        -> Registration
    {
        parts.observers.observe(.warning, name, isFirst: true, body)
    }

    /// Returns a sequence of the announced levels in `mask`. The events carry no instruction.
    public func levelSource(mask: PressureLevelMask) -> LevelSource { LevelSource(mask, self) }
}

/// Runs work once for each event, on the first route that delivers the event (T11).
///
///     let once = OncePerEvent()
///     manager.onMemoryWarning { event in once.run(event) { trim() } }
///     manager.observe { event in once.run(event) { trim() } }
public final class OncePerEvent: Sendable {
    /// Newest event identifier; identifiers only grow. Relaxed: the caller that wins the atomic maximum does the
    /// work, and no other memory access depends on this value.
    private let last = Atomic<UInt64>(0)

    /// Creates an instance that has seen no event. Use one instance for each manager.
    public init() {}

    /// Runs `work` unless work was done or begun for this event or a later one.
    ///
    /// - Returns: true if `work` ran.
    @discardableResult
    public func run<Problem: Error>(_ event: PressureEvent, _ work: () throws(Problem) -> Void) throws(Problem) -> Bool
    {
        guard last.max(event.id, ordering: .relaxed).oldValue < event.id else { return false }
        try work()
        return true
    }
}
