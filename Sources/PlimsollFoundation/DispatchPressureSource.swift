import Dispatch
public import Plimsoll
import Synchronization

/// A pressure source for a Mac, where the kernel announces memory pressure to sources of Dispatch. The source knows
/// levels only: no limit, no usage and no room.
///
///     #if canImport(Darwin)
///     let manager = ResourceManager(source: DispatchPressureSource())
///     #else
///     let manager = ResourceManager(source: LinuxPressureSource())
///     #endif
///
/// The kernel of a Mac judges the machine as a whole. A process of a small service may therefore receive warnings
/// that other processes cause. On Linux the source follows the manager that feeds the memory-pressure sources of the
/// process (`ResourceManager.feedMemoryPressureSources()`); use `LinuxPressureSource` there.
public final class DispatchPressureSource: PressureSource {
    private let source: Shared<any DispatchSourceMemoryPressure>
    private let state: State

    private final class State: Sendable {
        let announced = Mutex(Announced())
        let parker = Parker()
    }

    /// Creates a source, which receives levels from now on.
    public init() {
        let queue = DispatchQueue(label: "plimsoll.memory-pressure"), state = State()
        let source = DispatchSource.makeMemoryPressureSource(eventMask: .all, queue: queue)
        // Weak: Dispatch keeps the handler for as long as the source.
        source.setEventHandler { [weak source] in
            guard let data = source?.data else { return }
            state.announced.withLock { $0.receive(data) }
            state.parker.unpark()
        }
        source.activate()
        (self.source, self.state) = (Shared(source), state)
    }

    deinit { source.object.cancel() }

    /// One signal.
    public var capabilities: Capabilities {
        #if canImport(Darwin)
        let feed = "announced by the kernel for the whole machine"
        #else
        let feed = "announced by the manager that feeds the memory-pressure sources"
        #endif
        return Capabilities(support: .announced, signals: [.init("memory pressure", isLive: true, feed)])
    }

    /// Returns a reading that has the announced level only.
    public func read(at: Duration) throws(PressureSourceError) -> PressureReading {
        PressureReading(at: at, announced: state.announced.withLock { $0.take() })
    }

    public func wait(atMost limit: Duration) { state.parker.park(atMost: limit) }
    public func wake() { state.parker.unpark() }
    /// Returns zeros: effects of actions are not measured.
    public func footprint() -> Footprint { Footprint() }
    /// True: an announcement ends a wait.
    public var rings: Bool { true }

    /// The level that was announced last, and the highest level since the last reading.
    struct Announced {
        private var present = PressureLevel.normal
        private var highest = PressureLevel.normal

        /// Notes the data of one call of the event handler. The order of combined events is unknown. The highest
        /// counts for one reading, so that no shortage is missed. The lowest stays, so that no level lasts for ever.
        mutating func receive(_ data: DispatchSource.MemoryPressureEvent) {
            let events: [(DispatchSource.MemoryPressureEvent, PressureLevel)] = [
                (.normal, .normal), (.warning, .warning), (.critical, .critical),
            ]
            let levels = events.filter { data.contains($0.0) }.map(\.1)
            guard let lowest = levels.first, let last = levels.last else { return }
            present = lowest
            highest = max(highest, last)
        }

        /// Returns the level for a reading.
        mutating func take() -> PressureLevel {
            defer { highest = .normal }
            return max(present, highest)
        }
    }
}

extension ResourceManager {
    /// Passes the announced levels on to the memory-pressure sources of the process. Code that was written for a Mac
    /// then receives the levels by `DispatchSource.makeMemoryPressureSource(eventMask:queue:)`. Call this method once
    /// in the process, before or after sources are made.
    ///
    /// On a Mac the method has no effect, as the kernel feeds the sources. Nor does it have one for a manager that reads
    /// from a `DispatchPressureSource`: the manager would follow itself.
    ///
    /// - Returns: A registration that ends the feed when cancelled.
    @discardableResult
    public func feedMemoryPressureSources() -> Registration {
        #if canImport(Darwin)
        return Registration(close: {}, remove: {})
        #else
        guard !(source is DispatchPressureSource) else { return Registration(close: {}, remove: {}) }
        return observe(from: .normal, "memory-pressure sources") { MemoryPressureSources.post($0.level) }
        #endif
    }
}
