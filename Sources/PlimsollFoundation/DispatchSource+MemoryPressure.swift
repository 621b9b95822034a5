#if !canImport(Darwin)
public import Dispatch
import Plimsoll
import Synchronization

// The memory-pressure source of Dispatch, which only a Mac has. The names and shapes are those of a Mac, so that code
// written there compiles here. A source is one of Dispatch's own for combined data, and so behaves as on a Mac when
// the source is suspended, cancelled or released.

extension DispatchSource {
    /// A set of memory-pressure levels, for the mask and the data of a memory-pressure source.
    public struct MemoryPressureEvent: OptionSet, Sendable, Hashable {
        public let rawValue: UInt

        /// Creates a set from raw bits.
        public init(rawValue: UInt) { self.rawValue = rawValue }

        /// The level has returned to `normal`.
        public static let normal = MemoryPressureEvent(rawValue: 0x1)
        /// The level has changed to `warning`.
        public static let warning = MemoryPressureEvent(rawValue: 0x2)
        /// The level has changed to `critical`.
        public static let critical = MemoryPressureEvent(rawValue: 0x4)
        /// All levels.
        public static let all: MemoryPressureEvent = [.normal, .warning, .critical]
    }

    /// Returns a source of the levels that a manager announces, as on a Mac.
    ///
    ///     let source = DispatchSource.makeMemoryPressureSource(eventMask: [.warning, .critical], queue: queue)
    ///     source.setEventHandler { [unowned source] in trim(source.data) }
    ///     source.activate()
    ///
    /// No event arrives before a manager of the process feeds the sources
    /// (`ResourceManager.feedMemoryPressureSources()`). Events that occur while the source is suspended, or while the
    /// handler runs, are combined: the handler runs once, and `data` contains each level. Keep the source: releasing
    /// the last reference ends the events, without the cancel handler.
    ///
    /// - Parameters:
    ///   - eventMask: levels to receive.
    ///   - queue: queue of the handlers; `nil` for a global queue.
    /// - Returns: An inactive source; call `activate()`.
    public static func makeMemoryPressureSource(eventMask: MemoryPressureEvent, queue: DispatchQueue? = nil)
        -> any DispatchSourceMemoryPressure
    {
        // The overlay of Dispatch makes all sources of this class.
        let source = DispatchSource.makeUserDataOrSource(queue: queue) as! DispatchSource
        MemoryPressureSources.add(source, eventMask)
        return source
    }
}

/// A source of memory-pressure levels (`DispatchSource.makeMemoryPressureSource(eventMask:queue:)`).
public protocol DispatchSourceMemoryPressure: DispatchSourceProtocol, AnyObject {
    /// The levels since the last call of the handler. Valid in the event handler.
    var data: DispatchSource.MemoryPressureEvent { get }
    /// The levels that the source receives.
    var mask: DispatchSource.MemoryPressureEvent { get }
}

extension DispatchSource: DispatchSourceMemoryPressure {}

extension DispatchSourceMemoryPressure where Self: DispatchSource {
    public var data: DispatchSource.MemoryPressureEvent { .init(rawValue: (self as any DispatchSourceProtocol).data) }
    public var mask: DispatchSource.MemoryPressureEvent { MemoryPressureSources.mask(of: ObjectIdentifier(self)) }
}

extension DispatchSource.MemoryPressureEvent {
    init(_ level: PressureLevel) {
        switch level {
        case .normal: self = .normal
        case .warning: self = .warning
        case .critical: self = .critical
        }
    }
}

/// The memory-pressure sources of the process. Global, because a call of
/// `DispatchSource.makeMemoryPressureSource(eventMask:queue:)` names no manager.
enum MemoryPressureSources {
    // Unchecked: another thread only loads the weak reference and merges data into the source. Both are atomic.
    private final class Entry: @unchecked Sendable {
        private(set) weak var source: DispatchSource?
        let id: ObjectIdentifier
        let mask: DispatchSource.MemoryPressureEvent

        init(_ source: DispatchSource, _ mask: DispatchSource.MemoryPressureEvent) {
            (self.source, self.mask) = (source, mask)
            id = ObjectIdentifier(source)
        }
    }

    private static let entries = Mutex<[Entry]>([])

    static var count: Int { entries.withLock { $0.count } }

    static func add(_ source: DispatchSource, _ mask: DispatchSource.MemoryPressureEvent) {
        // Entries of released sources would else pile up in a process without a feed.
        _ = live()
        let entry = Entry(source, mask)
        entries.withLock { $0.append(entry) }
    }

    static func mask(of id: ObjectIdentifier) -> DispatchSource.MemoryPressureEvent {
        // The last one: a released source may have had the same address before.
        entries.withLock { $0.last { $0.id == id }?.mask ?? [] }
    }

    /// Delivers `level` to all sources that listen for the level. Calls no handler: Dispatch calls handlers on the
    /// queues of the sources.
    static func post(_ level: PressureLevel) {
        let event = DispatchSource.MemoryPressureEvent(level)
        for (entry, source) in live() where entry.mask.contains(event) {
            (source as any DispatchSourceUserDataOr).or(data: event.rawValue)
        }
    }

    /// Returns the sources that are still in use, and forgets the others. References are taken and dropped outside
    /// the lock, as one taken here may be the last.
    private static func live() -> [(entry: Entry, source: DispatchSource)] {
        var live: [(entry: Entry, source: DispatchSource)] = [], gone: Set<ObjectIdentifier> = []
        for entry in entries.withLock({ $0 }) {
            if let source = entry.source { live.append((entry, source)) } else { gone.insert(ObjectIdentifier(entry)) }
        }
        if !gone.isEmpty { entries.withLock { $0.removeAll { gone.contains(ObjectIdentifier($0)) } } }
        return live
    }
}
#endif
