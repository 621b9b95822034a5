import Plimsoll
public import PlimsollLifecycle

/// The share of requests of each priority that is served when memory is short: a table with a row each for the extents
/// `.half`, `.quarter` and `.least`. While memory is plentiful (`.open`), `limit` alone applies.
///
/// | memory | `critical` | `normal` | `sheddable` |
/// |---|---|---|---|
/// | plentiful | all | all | all |
/// | `warning` | all | at most ½ at once | at most ¼ at once |
/// | `critical` | all | every 2nd, at most ¼ at once | none |
/// | the ladder quiesces; in the background | at most ½ at once | every 4th, at most ⅛ at once | none |
///
/// A request that exceeds the concurrency, or has a priority of which none is served, waits for at most `patience`
/// (`RequestShedder.admit`). Only then is the request refused: most shortages end sooner.
///
/// The table admits only every 2nd or 4th request where memory outlives requests, for example data that slow readers
/// have not taken. The memory cost of a request cannot be known from outside. Requests that need much memory should
/// therefore be `sheddable`.
///
/// "At once" is a share of `limit`. Without a limit, the share refers to the peak concurrency while memory was
/// plentiful.
public struct SheddingPolicy: Sendable, Hashable {
    /// The share of one priority's requests that is served.
    public struct Admission: Sendable, Hashable {
        /// Share of arriving requests to admit, in `0...1`.
        public var arrivals: Double
        /// Share of the concurrency, in `0...1`, counted over all priorities. One request may run as long as any is
        /// admitted.
        public var concurrency: Double

        /// Creates an admission with the given shares.
        public init(arrivals: Double = 1, concurrency: Double = 1) {
            self.arrivals = arrivals
            self.concurrency = concurrency
        }

        /// Admits all requests.
        public static let all = Admission()
        /// Admits no request.
        public static let none = Admission(arrivals: 0, concurrency: 0)
    }

    /// Maximum concurrency at any level, at least 1; `nil` for no limit while memory is plentiful.
    public var limit: Int?
    /// Seed that varies the refused requests and the retry times between instances of a service. Random by default; a
    /// fixed seed makes both repeatable.
    public var seed: UInt64
    /// Longest wait of a request while memory is short, before the request is refused; zero refuses at once. Waiting
    /// requests keep their connections and the received parts of their bodies.
    public var patience: Duration
    /// Maximum number of waiting requests; further requests are refused.
    public var mostWaiting: Int
    private var rows: [QuiesceExtent.Share: [RequestPriority: Admission]]
    private var waits: [QuiesceExtent.Share: ClosedRange<Int>] = [:]

    /// Creates a policy with the table above.
    public init(
        limit: Int? = nil, seed: UInt64 = .random(in: .min ... .max), patience: Duration = .seconds(1),
        mostWaiting: Int = 256
    ) {
        self.limit = limit
        self.seed = seed
        (self.patience, self.mostWaiting) = (patience, mostWaiting)
        rows = [
            .half: [.normal: .init(concurrency: 0.5), .sheddable: .init(concurrency: 0.25)],
            .quarter: [.normal: .init(arrivals: 0.5, concurrency: 0.25), .sheddable: .none],
            .least: [
                .critical: .init(concurrency: 0.5), .normal: .init(arrivals: 0.25, concurrency: 0.125),
                .sheddable: .none,
            ],
        ]
    }

    /// The admission of `priority` while a shortage leaves the share of `extent`. For `.open` a value has no effect.
    public subscript(priority: RequestPriority, extent: QuiesceExtent) -> Admission {
        get { rows[extent.share]?[priority] ?? .all }
        set { rows[extent.share, default: [:]][priority] = newValue }
    }

    /// Range of retry times in seconds for requests refused at the share of `extent`; each request gets another value
    /// of the range. With `nil`, the default, the range follows measured recovery times.
    public subscript(retryAfter extent: QuiesceExtent) -> ClosedRange<Int>? {
        get { waits[extent.share] }
        set { waits[extent.share] = newValue }
    }

    /// Describes the first invalid value and the allowed range; `nil` if the policy is valid.
    public var problem: String? {
        if patience < .zero || mostWaiting < 0 {
            return "patience is \(patience) and mostWaiting \(mostWaiting), allowed is 0 and more"
        }
        if let limit, limit < 1 { return "limit is \(limit), allowed is 1 and more, or nil for no limit" }
        for (share, row) in rows {
            for (priority, admission) in row
            where !(0...1).contains(admission.arrivals) || !(0...1).contains(admission.concurrency) {
                return
                    "\(priority) at \(share) admits \(admission.arrivals) of arrivals and \(admission.concurrency) of concurrency; allowed is 0...1"
            }
        }
        for (share, wait) in waits where wait.lowerBound < 0 || wait.upperBound > 86_400 {
            return "retryAfter at \(share) is \(wait.lowerBound)...\(wait.upperBound) s, allowed is 0...86400"
        }
        return nil
    }
}

extension SheddingPolicy {
    /// The policy in a form for fast decisions.
    struct Terms: Sendable {
        /// Threshold on an evenly spread sequence: words below the threshold are admitted; `nil` admits all.
        var threshold: UInt64?
        var concurrency: Double

        init(_ admission: Admission) {
            threshold = admission.arrivals >= 1 ? nil : UInt64(admission.arrivals * 0x1p64)
            concurrency = admission.concurrency
        }

        /// Returns the concurrency allowed out of `most`.
        func room(of most: Int) -> Int {
            concurrency >= 1 || most == .max ? most : max(1, Int(Double(most) * concurrency))
        }
    }

    /// All terms, indexed by share and then priority.
    var terms: [Terms] {
        QuiesceExtent.Share.allCases.flatMap { share in RequestPriority.allCases.map { Terms(rows[share]?[$0] ?? .all) }
        }
    }
}

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
    package enum Reason: String, Sendable, Hashable, CaseIterable, Codable {
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
    package var reason: Reason
    /// True if the process admits no requests at all; false if memory is short, or the limit is reached.
    public var isPaused: Bool { reason == .paused }
    /// The extent at that moment.
    public var extent: QuiesceExtent
    /// Retry time in seconds. Differs between refusals, so that requests refused together do not return together.
    public var retryAfterSeconds: Int
}

extension RequestRefusal: CustomStringConvertible {
    public var description: String {
        let why =
            switch reason {
            case .concurrency where extent.share == .whole: "the limit of concurrent requests is reached"
            case .concurrency: "memory is short, and the reduced limit of concurrent \(priority) requests is reached"
            case .arrivals: "memory is short, and only a share of \(priority) requests is served"
            case .paused: "the process accepts no work at present"
            }
        return "not served: \(why); retry in \(retryAfterSeconds) s"
    }
}

/// A sequence of words in which every stretch is evenly spread: multiples of the golden ratio (Weyl's sequence;
/// Knuth, The Art of Computer Programming 3, 6.4).
enum Spread {
    static func word(_ number: UInt64, from start: UInt64) -> UInt64 { number &* 0x9e37_79b9_7f4a_7c15 &+ start }

    /// Returns the start of the sequence with the given number, far from the starts of other sequences. Uses the last
    /// step of SplitMix64.
    static func start(_ number: UInt64, seed: UInt64) -> UInt64 {
        SplitMix64.mixed(seed &+ (number &+ 1) &* 0xd1b5_4a32_d192_ed03)
    }
}
