import Plimsoll
import PlimsollLifecycle

/// Events from the service of `demo lifecycle`, one JSON line each on standard output.
struct LifecycleEvent: Codable, Hashable {
    enum Kind: String, Codable, CaseIterable {
        /// State of the previous run was restored: `number` requests. `cause` tells how that run ended.
        case restored
        /// `unit` went `from` a state `to` the next because of `cause`.
        case transition
        /// The service listens on port `number`, or has stopped listening.
        case listening, closed
        /// The service took or released the lock.
        case locked, unlocked
        /// The key was filled, or wiped.
        case filled, wiped
        /// The service saves that it has answered `number` requests.
        case saved
        /// The ticker ticked, having missed `number`.
        case tick
        /// The long task: begun, asked to stop because of `cause`, ended with `number` parts done.
        case began, expired, ended
        /// The process runs again after a gap of `microseconds`.
        case resumed
        /// The file changed `number` times, and `to` is the present text.
        case changed
        /// Last event before a termination in good order.
        case terminating
    }

    var kind: Kind
    /// Time on the steady clock that both processes share.
    var atMicroseconds: Int
    /// The process or a scene.
    var unit: String?
    var from: String?
    var to: String?
    var cause: String?
    var number: Int?
    var microseconds: Int?

    /// Name of the unit that is the process.
    static let process = "process"

    init(_ kind: Kind, number: Int? = nil, cause: String? = nil, at: Duration = SteadyClock.now) {
        self.kind = kind
        atMicroseconds = Int(at.inNanoseconds / 1000)
        self.number = number
        self.cause = cause
    }

    /// Creates a transition of `unit`.
    init(
        _ unit: String, _ from: LifecycleState, _ to: LifecycleState, _ cause: LifecycleCause,
        at: Duration = SteadyClock.now
    ) {
        self.init(.transition, cause: cause.rawValue, at: at)
        self.unit = unit
        self.from = "\(from)"
        self.to = "\(to)"
    }

    var at: Duration { .microseconds(atMicroseconds) }
    /// The state entered, for a transition.
    var state: LifecycleState? { LifecycleState.allCases.first { "\($0)" == to } }

    func emit() { Output.line(JSONLine.encode(self)) }
}

/// Requests to the service, one line each on standard input. SIGTERM requests the end.
enum LifecycleRequest: String, CaseIterable {
    case interrupt, resume, task, background, foreground
}
