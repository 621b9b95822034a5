import Synchronization

/// Levels to hear of.
public struct PressureLevelMask: OptionSet, Sendable, Hashable {
    public let rawValue: UInt8

    /// From its bits.
    public init(rawValue: UInt8) { self.rawValue = rawValue }

    /// `normal`: recovery. Nothing need be freed then (T10).
    public static let normal = PressureLevelMask(PressureLevel.normal)
    /// `warning`.
    public static let warning = PressureLevelMask(PressureLevel.warning)
    /// `critical`.
    public static let critical = PressureLevelMask(PressureLevel.critical)

    /// One level.
    public init(_ level: PressureLevel) { rawValue = 1 << level.rawValue }

    /// Whether `level` is among them.
    public func contains(_ level: PressureLevel) -> Bool { contains(PressureLevelMask(level)) }
}

/// The announced levels as they come, those of a mask only: the lowest of the four routes of a memory warning.
///
///     for await event in manager.levelSource(mask: [.warning, .critical]) { … }
///     let registration = manager.levelSource(mask: .critical).handle { event in … }
///
/// The newest wins for who is slow: what is in force counts, not how it came to that (T9).
public struct LevelSource: AsyncSequence, Sendable {
    /// Which levels.
    public let mask: PressureLevelMask
    private let manager: ResourceManager

    init(_ mask: PressureLevelMask, _ manager: ResourceManager) {
        self.mask = mask
        self.manager = manager
    }

    /// The level in force, whether or not it is in the mask.
    public var level: PressureLevel { manager.level }

    /// Calls `body` with each, on the manager's delivery thread.
    @discardableResult
    public func handle(_ body: @escaping @Sendable (PressureEvent) -> Void) -> Registration {
        let mask = mask
        return manager.observe(from: mask.contains(.normal as PressureLevel) ? .normal : .warning, "level source") { event in
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
    /// Calls `body` with each warning, before any other observer: the process's own route, for what is nobody else's.
    ///
    /// A memory warning takes four routes: this one, each active scene, observers and `pressureEvents`, and `levelSource(mask:)`. The event on all four has
    /// one `id`: whoever listens on several does its work once by `OncePerEvent`.
    @discardableResult
    public func onMemoryWarning(_ name: String = "memory warning", _ body: @escaping @Sendable (PressureEvent) -> Void) -> Registration {
        let observer = ObserverRegistry.Observer(name, .warning, body)
        let observers = parts.observers
        observers.add(observer, first: true)
        return Registration(observer.gate) { observers.remove(observer) }
    }

    /// The announced levels of `mask`, without any word on what is to be done.
    public func levelSource(mask: PressureLevelMask) -> LevelSource { LevelSource(mask, self) }
}

/// Has work done once for an event, on whichever of its routes it is heard of first (T11).
///
///     let once = OncePerEvent()
///     manager.onMemoryWarning { event in once.run(event) { trim() } }
///     manager.observe { event in once.run(event) { trim() } }
public final class OncePerEvent: Sendable {
    /// Ids only grow. Relaxed: whoever wins the exchange works; nothing else hangs on it.
    private let last = Atomic<UInt64>(0)

    /// Nothing heard of yet. One for each manager whose events are heard.
    public init() {}

    /// Runs `work` unless it was done, or begun, for this event or a later one.
    ///
    /// - Returns: whether it ran.
    @discardableResult
    public func run<Problem: Error>(_ event: PressureEvent, _ work: () throws(Problem) -> Void) throws(Problem) -> Bool {
        guard last.max(event.id, ordering: .relaxed).oldValue < event.id else { return false }
        try work()
        return true
    }
}
