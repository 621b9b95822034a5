import Plimsoll

/// What the service of `demo lifecycle` tells, a JSON line each on its standard output.
struct LifecycleEvent: Codable, Hashable {
    enum Kind: String, Codable, CaseIterable {
        /// What the run before left was given back: `number` requests, by the run that ended as `cause` says.
        case restored
        /// `unit` went `from` a state `to` the next for that `cause`.
        case transition
        /// It listens on the port `number`, or no longer does.
        case listening, closed
        /// It holds the lock, or no longer does.
        case locked, unlocked
        /// The key is there, or was wiped.
        case filled, wiped
        /// It saves that it has answered `number` requests.
        case saved
        /// The ticker ticked, having missed `number`.
        case tick
        /// The long task: begun, asked to stop for that `cause`, ended with `number` parts done.
        case began, expired, ended
        /// It runs again after a gap that took `microseconds`.
        case resumed
        /// The file changed, `number` times, and now says `to`.
        case changed
        /// The last word before a termination in good order.
        case terminating
    }

    var kind: Kind
    /// On the steady clock that both processes share.
    var atMicroseconds: Int
    /// The process or a scene.
    var unit: String?
    var from: String?
    var to: String?
    var cause: String?
    var number: Int?
    var microseconds: Int?

    /// The unit that is the process.
    static let process = "process"

    init(_ kind: Kind, number: Int? = nil, cause: String? = nil, at: Duration = SteadyClock.now) {
        self.kind = kind
        atMicroseconds = Int(at.inNanoseconds / 1000)
        self.number = number
        self.cause = cause
    }

    /// A step of `unit`.
    init(_ unit: String, _ from: LifecycleState, _ to: LifecycleState, _ cause: LifecycleCause, at: Duration = SteadyClock.now) {
        self.init(.transition, cause: cause.rawValue, at: at)
        self.unit = unit
        self.from = "\(from)"
        self.to = "\(to)"
    }

    var at: Duration { .microseconds(atMicroseconds) }
    /// The state entered, of a transition.
    var state: LifecycleState? { LifecycleState.allCases.first { "\($0)" == to } }

    func emit() { Output.line(JSONLine.encode(self)) }
}

/// What the service is asked for, a line each on its standard input. Its end is asked for by SIGTERM.
enum LifecycleRequest: String, CaseIterable {
    case interrupt, resume, task, background, foreground
}
