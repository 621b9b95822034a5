#if Tracing
import Plimsoll
import Tracing

/// Records a span for each action of a manager, and carries the context of each `beginBackgroundTask` to the
/// expiration handler.
///
/// A span is created after its action has ended, with the times of begin and end. No code that frees memory waits for
/// tracing. Each span starts a trace of its own, because no request caused the action. Attributes have the names of
/// the log's metadata (`ManagerLog`).
struct ManagerSpans {
    private let tracer: any Tracer

    init(_ tracer: any Tracer) { self.tracer = tracer }

    func begin(_ manager: ResourceManager) {
        manager.onReport { report in record(report, endedAt: DefaultTracerClock.now) }
        manager.carryContext {
            let context = ServiceContext.current
            return { body in ServiceContext.$current.withValue(context, operation: body) }
        }
    }

    func record(_ report: ActionReport, endedAt end: some TracerInstant) {
        let status = ActionStatus(report)
        let took = UInt64(max(0, report.took.inNanoseconds))
        let span = tracer.startSpan(
            "plimsoll \(status.action)", context: .topLevel, ofKind: .internal,
            at: Instant(nanosecondsSinceEpoch: end.nanosecondsSinceEpoch &- took))
        span.attributes["plimsoll.action"] = status.action
        span.attributes["plimsoll.mode"] = status.mode
        span.attributes["plimsoll.level"] = status.level
        span.attributes["plimsoll.origin"] = status.origin
        span.attributes["plimsoll.evidence"] = status.evidence
        span.attributes["plimsoll.event"] = Int64(clamping: status.eventID)
        span.attributes["plimsoll.outcome"] = status.outcome
        span.attributes["plimsoll.asked_bytes"] = Int64(status.askedBytes)
        span.attributes["plimsoll.released_bytes"] = Int64(status.releasedBytes + status.releasedVolatileBytes)
        span.attributes["plimsoll.resident_fall_bytes"] = Int64(report.residentFall.bytes)
        if case .overran = report.outcome { span.setStatus(.init(code: .error, message: status.outcome)) }
        span.end(at: Instant(nanosecondsSinceEpoch: end.nanosecondsSinceEpoch))
    }

    private struct Instant: TracerInstant {
        var nanosecondsSinceEpoch: UInt64
        static func < (left: Instant, right: Instant) -> Bool {
            left.nanosecondsSinceEpoch < right.nanosecondsSinceEpoch
        }
    }
}
#endif
