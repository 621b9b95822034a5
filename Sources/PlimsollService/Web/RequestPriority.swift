import Plimsoll
public import PlimsollLifecycle

/// The importance of a request when not all requests can be served.
public enum RequestPriority: UInt8, Sendable, Hashable, Comparable, CaseIterable, Codable {
    /// Refused first: requests that clients repeat automatically, prefetches, crawlers, reports that no user waits
    /// for.
    case sheddable
    /// The priority of most requests.
    case normal
    /// Served as long as any request is: payments, log-ins, requests that other services depend on.
    case critical

    public static func < (left: RequestPriority, right: RequestPriority) -> Bool { left.rawValue < right.rawValue }
}

/// An error for a request that a `RequestShedder` has not admitted. No work was done for the request.
public struct RequestRefusal: Error, Sendable, Hashable {
    /// The reason for a refusal.
    public enum Reason: String, Sendable, Hashable, CaseIterable, Codable {
        /// The concurrency limit of the priority is reached.
        case concurrency
        /// Only a share of these requests is admitted, and this request is not part of that share.
        case arrivals
        /// The process admits no requests: interrupted, shutting down, or just resumed after a freeze.
        case paused
    }

    /// Name of the shedder.
    public var shedder: String
    /// Priority of the request.
    public var priority: RequestPriority
    /// The reason for the refusal.
    public var reason: Reason
    /// The extent at that moment.
    public var extent: QuiesceExtent
    /// Retry time in seconds. Differs between refusals, so that requests refused together do not return together.
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
