import Plimsoll
import PlimsollLifecycle

/// Prints the demo as it happens, a line for each event: seconds, the state of the process, the event. Ticks and
/// answered requests get no line each.
struct LifecycleTimeline {
    private var outcome: LifecycleRecord.Outcome?

    mutating func report(_ text: String, _ record: LifecycleRecord, at: Duration) {
        Output.line(Self.line(text, record.state(at: at), at: at))
    }

    mutating func report(_ seen: LifecycleRecord.Seen, _ record: LifecycleRecord) {
        guard let text = Self.text(seen.event) else { return }
        report(text, record, at: seen.at)
    }

    /// Prints a request if its outcome differs from the previous one.
    mutating func report(_ request: LifecycleRecord.Request, _ record: LifecycleRecord) {
        guard request.outcome != outcome else { return }
        outcome = request.outcome
        report(Self.text(request.outcome), record, at: request.at)
    }

    static func line(_ text: String, _ state: LifecycleState, at: Duration) -> String {
        Text.right(Text.fixed(at.inSeconds, decimals: 2), 6) + " s  "
            + Text.left(state == .notRunning ? "-" : "\(state)", 11) + text
    }

    static func text(_ outcome: LifecycleRecord.Outcome) -> String {
        switch outcome {
        case .answered: "  requests are answered"
        case .refused: "  requests are refused (503)"
        case .closed: "  not listening"
        case .silent: "  requests are not answered"
        }
    }

    /// Returns the text of an event; `nil` if the event is only drawn.
    static func text(_ event: LifecycleEvent) -> String? {
        let cause = event.cause ?? "", number = event.number ?? 0
        switch event.kind {
        case .restored: return "  state restored: \(number) requests answered so far (run before: \(cause))"
        case .transition: return "\(event.unit ?? ""): \(event.from ?? "") → \(event.to ?? "") (\(cause))"
        case .listening: return "  listens on port \(number)"
        case .closed: return "  stopped listening"
        case .locked: return "  lock acquired, epoch \(number)"
        case .unlocked: return "  lock released"
        case .filled: return "  key read"
        case .wiped: return "  key wiped"
        case .saved: return "  state saved: \(number) requests answered"
        case .tick: return nil
        case .began: return "  long task begun"
        case .expired: return "  long task asked to stop (\(cause))"
        case .ended: return "  long task ended after \(number) parts of 100"
        case .resumed:
            return "  resumed: \(cause) for \(Text.number(Double(event.microseconds ?? 0) / 1e6)) s"
        case .changed: return "  file changed \(number) times, one event: \(event.to ?? "")"
        case .terminating: return "  terminating"
        }
    }
}
