/// Outcome of a load.
public struct LoadResult: Codable, Sendable, Equatable {
    public var seconds: Double
    public var routes: [String: RouteResult] = [:]
    /// Seconds from the beginning until the server was found to be gone; `nil` if the server stayed.
    public var goneAtSeconds: Double?
    /// The longest delay of the load itself in milliseconds: the delay of a wake-up for requests that were due.
    public var worstWakeDelayMilliseconds = 0.0
    /// Processor time the load itself took, in seconds, warm-up included.
    public var processorSeconds = 0.0

    /// Requests of all routes that were answered with 200 in time.
    public var good: Int { routes.values.reduce(0) { $0 + $1.good } }
    public var goodPerSecond: Double { Double(good) / seconds }

    public subscript(_ route: Route) -> RouteResult { routes[route.rawValue] ?? RouteResult() }
}

/// Outcomes of the requests of one route.
public struct RouteResult: Codable, Sendable, Equatable {
    /// Requests that the trace asks for.
    public var due = 0
    /// Answered with 200 in time.
    public var good = 0
    /// Answered with 503 in time.
    public var refused = 0
    /// Not sent within a second of their time, or not answered in the time for the route.
    public var late = 0
    /// Answered otherwise, cut off, or due when the server was gone.
    public var failed = 0
    /// Of those answered with 200 that say so, how many came from the cache.
    public var hits = 0
    public var misses = 0
    /// Milliseconds from the time a request was due to its good answer; `nil` without one.
    public var p50: Double?
    public var p99: Double?

    public init() {}

    /// Share of hits; `nil` without an answer.
    public var hitRatio: Double? { hits + misses > 0 ? Double(hits) / Double(hits + misses) : nil }
}
