#if Tracing
import Plimsoll
import Tracing

/// A span for each action that a manager has taken, and the context of each `beginBackgroundTask` around its expiration handler.
///
/// A span is made when its action is over, with the times at which it began and ended: nothing on the path that frees memory knows of it. It is a trace of its own,
/// as no request asked for it. Attributes are named as the log's metadata is (`ManagerLog`).
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
            "plimsoll \(status.action)", context: .topLevel, ofKind: .internal, at: Instant(nanosecondsSinceEpoch: end.nanosecondsSinceEpoch &- took))
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
        static func < (left: Instant, right: Instant) -> Bool { left.nanosecondsSinceEpoch < right.nanosecondsSinceEpoch }
    }
}
#endif
