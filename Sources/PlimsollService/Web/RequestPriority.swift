public import Plimsoll

/// What a request is worth when not all can be served.
public enum RequestPriority: UInt8, Sendable, Hashable, Comparable, CaseIterable, Codable {
    /// Given up first: what somebody asks for again by itself, prefetches, crawlers, reports nobody waits for.
    case sheddable
    /// What most requests are.
    case normal
    /// Served for as long as anything is: payments, a log-in, what other services can't do without.
    case critical

    public static func < (left: RequestPriority, right: RequestPriority) -> Bool { left.rawValue < right.rawValue }
}

/// A request that a `RequestShedder` has not admitted. Nothing was done about it.
public struct RequestRefusal: Error, Sendable, Hashable {
    /// Why not.
    public enum Reason: String, Sendable, Hashable, CaseIterable, Codable {
        /// As many run as may run at once for its priority.
        case concurrency
        /// Only a share of such requests is admitted, and this one is not of it.
        case arrivals
        /// The process admits nothing: it is interrupted, on its way out or just back from a freeze.
        case paused
    }

    /// The shedder's name.
    public var shedder: String
    /// What the request was worth.
    public var priority: RequestPriority
    /// Why not.
    public var reason: Reason
    /// How much might go on at that moment.
    public var extent: QuiesceExtent
    /// Seconds after which to ask again, different for each refusal, so that those who were refused together don't come back together.
    public var retryAfterSeconds: Int
}

extension RequestRefusal: CustomStringConvertible {
    public var description: String {
        let why =
            switch reason {
            case .concurrency where extent.share == .whole: "as many requests run as may run at once"
            case .concurrency: "memory is short, and as many \(priority) requests run as may run now"
            case .arrivals: "memory is short, and only a part of \(priority) requests is served"
            case .paused: "the process takes no work just now"
            }
        return "not served: \(why); ask again in \(retryAfterSeconds) s"
    }
}
