/// Which signals a source has, probed by using them, and why it lacks the others.
public struct Capabilities: Sendable, Hashable, Codable {
    /// The best footing available, in falling order of how much is known.
    public enum Footing: String, Sendable, Hashable, Codable {
        /// The service manager's variables name what to watch.
        case announced
        /// The own control group with limits and stall.
        case ownGroup
        /// The machine as a whole.
        case machine
        /// Events of the group only.
        case events
        /// Nothing wakes us; files are read at intervals.
        case polling
        /// Nothing is known.
        case inert
    }

    /// One signal.
    public struct Signal: Sendable, Hashable, Codable {
        /// What it is, for example `"usage"` or `"stall trigger"`.
        public var name: String
        /// Whether it works.
        public var isLive: Bool
        /// The file it comes from, or the reason why there is none.
        public var detail: String
        /// What an operator can do about it; `nil` if nothing need or can be done.
        public var remedy: String?

        /// A signal as probed.
        public init(_ name: String, isLive: Bool, _ detail: String, remedy: String? = nil) {
            self.name = name
            self.isLive = isLive
            self.detail = detail
            self.remedy = remedy
        }
    }

    /// The best footing.
    public var footing: Footing
    /// All signals, live ones and dead ones, in the order of the straight line from the kernel to a level.
    public var signals: [Signal]

    /// What was probed.
    public init(footing: Footing, signals: [Signal]) {
        self.footing = footing
        self.signals = signals
    }

    /// The signal of that name.
    public subscript(name: String) -> Signal? { signals.first { $0.name == name } }

    /// These and one more, which the source can't know of.
    package func adding(_ signal: Signal) -> Capabilities { Capabilities(footing: footing, signals: signals + [signal]) }
}

extension Capabilities: CustomStringConvertible {
    /// A line a signal: name, live or dead, where from or why not.
    public var description: String {
        signals.reduce("footing: \(footing.rawValue)") { $0 + "\n\($1.isLive ? "live" : "dead")  \($1.name): \($1.detail)" }
    }
}
