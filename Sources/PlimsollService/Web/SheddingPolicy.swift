public import Plimsoll

/// How much of each priority's requests is served when memory is short: a table, a row for each share that a shortage leaves.
///
/// | memory | `critical` | `normal` | `sheddable` |
/// |---|---|---|---|
/// | plentiful | all | all | all |
/// | `warning` | all | at most ½ at once | at most ¼ at once |
/// | `critical` | all | every 2nd, at most ¼ at once | none |
/// | the ladder quiesces; in the background | at most ½ at once | every 4th, at most ⅛ at once | none |
///
/// Who is over what may run at once, or of a priority of which none is served, waits for `patience` at most (`RequestShedder.admit`), and is refused only then: most
/// shortages are over sooner. Only every 2nd or 4th is served where memory outlives requests, as what slow readers have not taken does. What a request costs in memory
/// nobody can tell from outside, so requests that cost much of it are to be `sheddable`.
///
/// "At once" is of `limit`, or, without one, of the most requests that ran at once while memory was plentiful: what the service is used to.
public struct SheddingPolicy: Sendable, Hashable {
    /// What is served of one priority.
    public struct Admission: Sendable, Hashable {
        /// Share of arrivals, in `0...1`.
        public var arrivals: Double
        /// Share of concurrency, in `0...1`, all priorities together: as long as anything is admitted, one may run.
        public var concurrency: Double

        /// So much of arrivals, and of concurrency.
        public init(arrivals: Double = 1, concurrency: Double = 1) {
            self.arrivals = arrivals
            self.concurrency = concurrency
        }

        /// Everything.
        public static let all = Admission()
        /// Nothing.
        public static let none = Admission(arrivals: 0, concurrency: 0)
    }

    /// Requests that run at once at most, whatever the level, at least 1; `nil` for as many as come while memory is plentiful.
    public var limit: Int?
    /// Varies which requests are refused and for how long, among instances of a service. By default random; a fixed one makes both repeatable.
    public var seed: UInt64
    /// How long a request waits at most for its turn while memory is short, before it is refused; zero refuses at once. Waiting requests hold their connections, and
    /// what came of their bodies.
    public var patience: Duration
    /// Requests that wait at once at most; one more is refused.
    public var mostWaiting: Int
    private var rows: [QuiesceExtent.Share: [RequestPriority: Admission]]
    private var waits: [QuiesceExtent.Share: ClosedRange<Int>] = [:]

    /// The table above.
    public init(
        limit: Int? = nil, seed: UInt64 = .random(in: .min ... .max), patience: Duration = .seconds(1), mostWaiting: Int = 256
    ) {
        self.limit = limit
        self.seed = seed
        (self.patience, self.mostWaiting) = (patience, mostWaiting)
        rows = [
            .half: [.normal: .init(concurrency: 0.5), .sheddable: .init(concurrency: 0.25)],
            .quarter: [.normal: .init(arrivals: 0.5, concurrency: 0.25), .sheddable: .none],
            .least: [.critical: .init(concurrency: 0.5), .normal: .init(arrivals: 0.25, concurrency: 0.125), .sheddable: .none],
        ]
    }

    /// What is served of `priority` while a shortage leaves `share`.
    public subscript(priority: RequestPriority, share: QuiesceExtent.Share) -> Admission {
        get { rows[share]?[priority] ?? .all }
        set { rows[share, default: [:]][priority] = newValue }
    }

    /// Seconds after which those who are refused at `share` are asked to come again, each with another number of the range; `nil`, as by default, for what recovery
    /// took so far.
    public subscript(retryAfter share: QuiesceExtent.Share) -> ClosedRange<Int>? {
        get { waits[share] }
        set { waits[share] = newValue }
    }

    /// What makes no sense about it, with what is allowed; `nil` if it does make sense.
    public var problem: String? {
        if patience < .zero || mostWaiting < 0 { return "patience is \(patience) and mostWaiting \(mostWaiting), allowed is 0 and more" }
        if let limit, limit < 1 { return "limit is \(limit), allowed is 1 and more, or nil for no limit" }
        for (share, row) in rows {
            for (priority, admission) in row where !(0...1).contains(admission.arrivals) || !(0...1).contains(admission.concurrency) {
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
    /// The policy as numbers to decide by at once.
    struct Terms: Sendable {
        /// Of a sequence spread evenly over all words, those below it are admitted; `nil` for all.
        var threshold: UInt64?
        var concurrency: Double

        init(_ admission: Admission) {
            threshold = admission.arrivals >= 1 ? nil : UInt64(admission.arrivals * 0x1p64)
            concurrency = admission.concurrency
        }

        /// How many may run of `most`.
        func room(of most: Int) -> Int { concurrency >= 1 || most == .max ? most : max(1, Int(Double(most) * concurrency)) }
    }

    /// By share, then priority.
    var terms: [Terms] { QuiesceExtent.Share.allCases.flatMap { share in RequestPriority.allCases.map { Terms(self[$0, share]) } } }
}
