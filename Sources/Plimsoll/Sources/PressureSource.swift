/// A source of pressure readings. The manager's thread calls `read` and `wait` in turn. Other members may be called
/// from any thread.
public protocol PressureSource: Sendable {
    /// Live signals, and the reasons why the others are missing.
    var capabilities: Capabilities { get }

    /// Returns a reading of the present state, stamped `at`. Allocates nothing once the source is warm.
    ///
    /// - Throws: an error if nothing can be read at all. A single missing signal is a `nil` in the reading, not
    ///   an error.
    func read(at: Duration) throws(PressureSourceError) -> PressureReading

    /// Blocks the calling thread until an event occurs or `limit` has passed.
    func wait(atMost limit: Duration)

    /// Ends a `wait`: the present one, or else the next.
    func wake()

    /// Returns the resident memory of this process and the usage of its group, to measure the effect of an action.
    func footprint() -> Footprint

    /// True if a usage above the warning margin of `thresholds` ends a `wait` by itself, so that polling far below
    /// the margin can be slow.
    var rings: Bool { get }
}

/// An error that tells that nothing could be read.
public struct PressureSourceError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The operation, the file, and the reason of the failure.
    public var description: String

    /// Creates an error with that explanation.
    public init(_ description: String) { self.description = description }
}

/// Signals available to a source, probed by using them, and the reasons why others are missing.
public struct Capabilities: Sendable, Hashable, Codable {
    /// The best support available, in falling order of available information.
    package enum Support: String, Sendable, Hashable, Codable {
        /// The service manager's variables name the files to watch.
        case announced
        /// The process's own control group, with limits and stall.
        case ownGroup
        /// The machine as a whole.
        case machine
        /// Events of the group only.
        case events
        /// No event source works; files are polled.
        case polling
        /// The application's own source.
        case custom
        /// No information is available.
        case inert
    }

    /// One signal.
    public struct Signal: Sendable, Hashable, Codable {
        /// Name of the signal, for example `"usage"` or `"stall trigger"`.
        public var name: String
        /// True if the signal works.
        public var isLive: Bool
        /// The file that the signal comes from, or the reason why there is none.
        public var detail: String
        /// Remedy for an operator; `nil` if none is needed or possible.
        public var remedy: String?

        /// Creates a signal as probed.
        public init(_ name: String, isLive: Bool, _ detail: String, remedy: String? = nil) {
            self.name = name
            self.isLive = isLive
            self.detail = detail
            self.remedy = remedy
        }
    }

    package var support: Support
    /// All signals, live and dead, in the order of processing from the kernel to a level.
    public var signals: [Signal]

    /// Creates the capabilities of an application's own source, as probed.
    public init(signals: [Signal]) {
        self.init(support: signals.contains(where: \.isLive) ? .custom : .inert, signals: signals)
    }

    package init(support: Support, signals: [Signal]) {
        self.support = support
        self.signals = signals
    }

    /// Returns the signal of that name.
    public subscript(name: String) -> Signal? { signals.first { $0.name == name } }

    /// Returns these capabilities and one more signal, unknown to the source.
    package func adding(_ signal: Signal) -> Capabilities {
        Capabilities(support: support, signals: signals + [signal])
    }
}

extension Capabilities: CustomStringConvertible {
    /// One line per signal: name, live or dead, and the file or the reason.
    public var description: String {
        signals.reduce("support: \(support.rawValue)") {
            $0 + "\n\($1.isLive ? "live" : "dead")  \($1.name): \($1.detail)"
        }
    }
}
