public import Plimsoll
public import PlimsollLifecycle
import Synchronization

/// Decides which requests are served when memory is short. Independent of the web framework.
///
///     let shedder = RequestShedder("http")
///     manager.lifecycle.pausables.add(shedder)
///     if let refusal = shedder.begin(.normal) { return serviceUnavailable(refusal) }
///     defer { shedder.end() }
///
/// `begin` never waits. `admit` waits a short time, in the order of priority and then of arrival, because most
/// shortages end within a second.
///
/// While memory is plentiful, a decision costs three atomic operations and no lock. Thinned shares are evenly spread,
/// and exact to within one or two requests over any stretch. A pattern in the arrivals, such as every second request
/// of one kind, does not decide which requests are refused.
public final class RequestShedder: Quiescable, CountingQuiescable {
    public let name: String
    /// The policy of the shedder.
    public let policy: SheddingPolicy

    private let terms: [SheddingPolicy.Terms]
    /// Starts of the sequences: one for each priority's arrivals, and one for the retry times.
    private let starts: [UInt64]
    private let priorityCounters = (PriorityCounters(), PriorityCounters(), PriorityCounters())
    // Loads of `published` are relaxed: a decision that reads an extent while the extent changes admits one request
    // under the old extent. A change of `published` or `running` that can free a place is sequentially consistent,
    // like the count of waiters: either the thread that changes it sees a waiter, or that waiter sees the free place.
    private let published = Atomic<UInt8>(RequestShedder.open)
    private let running = Atomic<Int>(0)
    /// Peak concurrency since memory became plentiful.
    private let peak = Atomic<Int>(0)
    /// Base of the concurrency shares while memory is short.
    private let usual = Atomic<Int>(.max)
    private let refusals = Atomic<UInt64>(0)
    let queue: RequestQueue
    private let recovery: RecoveryMeter
    private let episodes = ShedEpisodes()
    private let elapsed: @Sendable () -> Duration

    /// The bits of the extent `open`.
    private static let open: UInt8 = 0
    /// Minimum of `usual`: below this concurrency, the number of requests is not the cause of the memory use.
    private static let leastUsual = 8

    /// Counters of one priority, in an allocation of their own.
    private final class PriorityCounters: Sendable {
        // Relaxed: these are numbers for reports and for the spreading.
        let admitted = Atomic<UInt64>(0)
        let exempted = Atomic<UInt64>(0)
        let arrivals = Atomic<UInt64>(0)
        let tooMany = Atomic<UInt64>(0)
        let thinned = Atomic<UInt64>(0)
        let paused = Atomic<UInt64>(0)
    }

    /// Creates a shedder with `policy`. Until the shedder joins a quiesce set or `quiesce(to:)` is called, only the
    /// limit applies.
    ///
    /// - Precondition: The policy is valid (`SheddingPolicy.problem`).
    public convenience init(_ name: String = "http", policy: SheddingPolicy = SheddingPolicy()) {
        let began = ContinuousClock.now
        self.init(
            name, policy: policy, elapsed: { ContinuousClock.now - began }, rest: { try? await Task.sleep(for: $0) })
    }

    /// Creates a shedder with a given clock.
    ///
    /// - Parameters:
    ///   - elapsed: the time since an arbitrary start.
    ///   - rest: returns after a duration, or when the task is cancelled.
    package init(
        _ name: String, policy: SheddingPolicy, elapsed: @escaping @Sendable () -> Duration,
        rest: @escaping @Sendable (Duration) async -> Void
    ) {
        if let problem = policy.problem { preconditionFailure("shedder \"\(name)\": \(problem)") }
        self.name = name
        self.policy = policy
        terms = policy.terms
        queue = RequestQueue(capacity: policy.mostWaiting, rest: rest)
        recovery = RecoveryMeter(elapsed)
        self.elapsed = elapsed
        starts = (0...UInt64(RequestPriority.allCases.count)).map { Spread.start($0, seed: policy.seed) }
    }

    // MARK: Deciding

    /// Admits a request or returns the reason for a refusal. After an admission, the caller must call `end()` when
    /// the request is done, with or without success.
    ///
    /// - Parameters:
    ///   - priority: priority of the request.
    ///   - isExempt: called only before a refusal; true to serve the request anyway, as needed for health checks.
    /// - Returns: `nil` if the request is admitted.
    public func begin(_ priority: RequestPriority, isExempt: () -> Bool = { false }) -> RequestRefusal? {
        let counters = counters(priority), bits = published.load(ordering: .relaxed)
        guard let reason = reserve(priority, counters, bits) else {
            counters.admitted.add(1, ordering: .relaxed)
            return nil
        }
        return refuse(priority, counters, bits, reason, isExempt)
    }

    /// Admits a request, after a wait of at most `policy.patience`, or returns the reason for a refusal. After an
    /// admission, the caller must call `end()` when the request is done, with or without success.
    ///
    /// A request that is cancelled while waiting is refused.
    ///
    /// - Returns: `nil` if the request is admitted.
    public func admit(_ priority: RequestPriority, isExempt: () -> Bool = { false }) async -> RequestRefusal? {
        let counters = counters(priority), bits = published.load(ordering: .relaxed)
        guard let reason = reserve(priority, counters, bits) else {
            counters.admitted.add(1, ordering: .relaxed)
            return nil
        }
        // A limit unrelated to memory queues no request, and a held process admits no work.
        if bits != Self.open, mayWait(priority, bits, reason), !isExempt() {
            let isAdmitted = await queue.wait(priority, atMost: policy.patience) { [self] in
                reserve(priority, counters, published.load(ordering: .relaxed), isWaiting: true) == nil
            }
            if isAdmitted {
                counters.admitted.add(1, ordering: .relaxed)
                return nil
            }
        }
        return refuse(priority, counters, published.load(ordering: .relaxed), reason, isExempt)
    }

    /// Returns true if waiting can help. A thinned-out request must not wait: a later admission would take the place
    /// of other requests.
    private func mayWait(_ priority: RequestPriority, _ bits: UInt8, _ reason: RequestRefusal.Reason) -> Bool {
        guard policy.patience > .zero, let row = QuiesceExtent(bits: bits).row else { return false }
        switch reason {
        case .concurrency: return true
        case .arrivals: return terms[row * 3 + Int(priority.rawValue)].threshold == 0
        case .paused: return false
        }
    }

    /// Ends a request that was admitted.
    public func end() {
        // Sequentially consistent, like the count of waiters: either this thread sees a waiter, or that waiter sees
        // the free place.
        running.subtract(1, ordering: .sequentiallyConsistent)
        queue.admitNext()
    }

    /// Number of requests that wait now.
    public var waiting: Int { queue.count }

    /// Runs `body` if the request is admitted, with the wait of `admit`.
    ///
    /// - Throws: `RequestRefusal` if the request is refused; errors of `body`.
    public func run<Result>(
        _ priority: RequestPriority, isExempt: () -> Bool = { false }, _ body: () async throws -> Result
    ) async throws -> Result {
        if let refusal = await admit(priority, isExempt: isExempt) { throw refusal }
        defer { end() }
        return try await body()
    }

    /// Reserves a place for a request, or returns the reason for a refusal.
    ///
    /// - Parameter isWaiting: true for a request that waits already and so was not thinned out on arrival.
    private func reserve(
        _ priority: RequestPriority, _ counters: PriorityCounters, _ bits: UInt8, isWaiting: Bool = false
    )
        -> RequestRefusal.Reason?
    {
        var most = policy.limit ?? .max
        if bits != Self.open {
            guard let row = QuiesceExtent(bits: bits).row else { return .paused }
            let terms = terms[row * 3 + Int(priority.rawValue)]
            if let threshold = terms.threshold, !isWaiting || threshold == 0 {
                let number = counters.arrivals.add(1, ordering: .relaxed).oldValue
                if Spread.word(number, from: starts[Int(priority.rawValue)]) >= threshold { return .arrivals }
            }
            most = terms.room(of: usual.load(ordering: .relaxed))
        }
        // Two concurrent requests may both be refused although one would fit. Never more requests are admitted than
        // fit.
        let now = running.add(1, ordering: .sequentiallyConsistent).newValue
        if now > most {
            running.subtract(1, ordering: .sequentiallyConsistent)
            // Another request may wait in the queue, and no request may be left whose end would admit that one.
            if !isWaiting { queue.admitNext() }
            return .concurrency
        }
        if bits == Self.open, now > peak.load(ordering: .relaxed) { peak.max(now, ordering: .relaxed) }
        return nil
    }

    private func refuse(
        _ priority: RequestPriority, _ counters: PriorityCounters, _ bits: UInt8, _ reason: RequestRefusal.Reason,
        _ isExempt: () -> Bool
    ) -> RequestRefusal? {
        if isExempt() {
            running.add(1, ordering: .relaxed)
            counters.admitted.add(1, ordering: .relaxed)
            counters.exempted.add(1, ordering: .relaxed)
            return nil
        }
        switch reason {
        case .concurrency: counters.tooMany.add(1, ordering: .relaxed)
        case .arrivals: counters.thinned.add(1, ordering: .relaxed)
        case .paused: counters.paused.add(1, ordering: .relaxed)
        }
        let extent = QuiesceExtent(bits: bits), range = policy[retryAfter: extent] ?? recovery.range
        let word = Spread.word(
            refusals.add(1, ordering: .relaxed).oldValue, from: starts[RequestPriority.allCases.count])
        let seconds = range.lowerBound + Int(word.multipliedFullWidth(by: UInt64(range.count)).high)
        return RequestRefusal(
            shedder: name, priority: priority, reason: reason, extent: extent, retryAfterSeconds: seconds)
    }

    private func counters(_ priority: RequestPriority) -> PriorityCounters {
        switch priority {
        case .sheddable: priorityCounters.0
        case .normal: priorityCounters.1
        case .critical: priorityCounters.2
        }
    }

    // MARK: Quiescing

    public func quiesce(to extent: QuiesceExtent) {
        let bits = extent.bits
        // The quiesce set makes one call at a time, so no other store comes between the load and the store.
        let before = published.load(ordering: .relaxed)
        if before == Self.open, bits != Self.open {
            usual.store(policy.limit ?? max(Self.leastUsual, peak.load(ordering: .relaxed)), ordering: .relaxed)
        }
        if bits == Self.open { peak.store(running.load(ordering: .relaxed), ordering: .relaxed) }
        published.store(bits, ordering: .sequentiallyConsistent)
        recovery.note(isShort: bits != Self.open)
        episodes.note(extent, refusedInAll, at: elapsed())
        queue.admitAll()
    }

    /// The extent last set by `quiesce(to:)`.
    public var extent: QuiesceExtent { QuiesceExtent(bits: published.load(ordering: .relaxed)) }

    // MARK: Counting

    /// Statistics in the form of a limiter. `limit` is the limit of `normal` requests; `Int.max` for none.
    public var statistics: (running: Int, waiting: Int, limit: Int, admitted: UInt64, refused: UInt64, expired: UInt64)
    {
        let counts = counts, bits = published.load(ordering: .relaxed)
        var limit = policy.limit ?? .max
        if bits != Self.open {
            limit =
                QuiesceExtent(bits: bits).row.map {
                    terms[$0 * 3 + Int(RequestPriority.normal.rawValue)].room(of: usual.load(ordering: .relaxed))
                } ?? 0
        }
        return (
            running: running.load(ordering: .relaxed), waiting: waiting, limit: limit,
            admitted: counts.admitted.values.reduce(0, +),
            refused: counts.refused.keys.reduce(0) { $0 + counts.refused($1) }, expired: 0
        )
    }

    /// Counts so far, by priority and reason.
    public var counts: RequestCounts {
        var counts = RequestCounts()
        for priority in RequestPriority.allCases {
            let counters = counters(priority)
            counts.admitted["\(priority)"] = counters.admitted.load(ordering: .relaxed)
            counts.exempted += counters.exempted.load(ordering: .relaxed)
            counts.refused["\(priority)"] = [
                RequestRefusal.Reason.concurrency.rawValue: counters.tooMany.load(ordering: .relaxed),
                RequestRefusal.Reason.arrivals.rawValue: counters.thinned.load(ordering: .relaxed),
                RequestRefusal.Reason.paused.rawValue: counters.paused.load(ordering: .relaxed),
            ]
        }
        return counts
    }

    public var requests: RequestCounts? { counts }
    public var refusedPerSecond: Double? { episodes.perSecond(refusedInAll, at: elapsed()) }

    /// Removes and returns news about refusals that are not reported yet.
    func takeNews() -> [ShedEpisodes.News] { episodes.takeNews(refusedInAll) }

    private var refusedInAll: ShedEpisodes.Counts {
        var counts = ShedEpisodes.Counts.zero
        func add(_ priority: RequestPriority) {
            let counters = counters(priority)
            counts[ShedEpisodes.index(priority, .concurrency)] = counters.tooMany.load(ordering: .relaxed)
            counts[ShedEpisodes.index(priority, .arrivals)] = counters.thinned.load(ordering: .relaxed)
            counts[ShedEpisodes.index(priority, .paused)] = counters.paused.load(ordering: .relaxed)
        }
        // Avoid `allCases`: an array is allocated on each use, and this code is on the path that frees memory.
        add(.sheddable)
        add(.normal)
        add(.critical)
        return counts
    }
}
