public import Plimsoll
import Synchronization

/// Decides which requests are served when memory is short, for any web framework.
///
///     let shedder = RequestShedder("http")
///     manager.lifecycle.pausables.add(shedder)
///     if let refusal = shedder.begin(.normal) { return serviceUnavailable(refusal) }
///     defer { shedder.end() }
///
/// `begin` never waits. `admit` waits for a moment first, in the order of priority and then of arrival, as most shortages are over within a second. While memory is
/// plentiful a decision is three atomic operations, and no lock is taken. Of what is thinned, the shares are kept to within a request or two over any stretch, evenly
/// spread, so that a pattern in what arrives (every second request of one kind) does not decide who is refused.
public final class RequestShedder: CountingQuiescable {
    public let name: String
    /// What it decides by.
    public let policy: SheddingPolicy

    private let terms: [SheddingPolicy.Terms]
    /// Where the sequences begin: one for each priority's arrivals, and one for the waits.
    private let starts: [UInt64]
    private let lanes = (Lane(), Lane(), Lane())
    // Relaxed, all three: each is looked at alone. Who decides by an extent that has just changed admits one request by the old one.
    private let published = Atomic<UInt16>(ExtentWord.open)
    private let running = Atomic<Int>(0)
    /// The most that ran at once since memory became plentiful.
    private let peak = Atomic<Int>(0)
    /// What shares of concurrency are of while memory is short.
    private let usual = Atomic<Int>(.max)
    private let refusals = Atomic<UInt64>(0)
    let queue: RequestQueue
    private let recovery: RecoveryMeter
    private let episodes = ShedEpisodes()
    private let elapsed: @Sendable () -> Duration

    /// Below this many at once it is not concurrency that takes the memory.
    private static let leastUsual = 8

    /// One priority's counters, apart from the others'.
    private final class Lane: Sendable {
        // Relaxed, all: numbers for people, and for spreading.
        let admitted = Atomic<UInt64>(0)
        let exempted = Atomic<UInt64>(0)
        let arrivals = Atomic<UInt64>(0)
        let tooMany = Atomic<UInt64>(0)
        let thinned = Atomic<UInt64>(0)
        let paused = Atomic<UInt64>(0)
    }

    /// A shedder that decides by `policy`; it sheds nothing but what is over its limit until it is in a quiesce set, or told by `quiesce(to:)`.
    ///
    /// - Precondition: the policy makes sense (`SheddingPolicy.problem`).
    public convenience init(_ name: String = "http", policy: SheddingPolicy = SheddingPolicy()) {
        let began = ContinuousClock.now
        self.init(name, policy: policy, elapsed: { ContinuousClock.now - began }, rest: { try? await Task.sleep(for: $0) })
    }

    /// - Parameters:
    ///   - elapsed: the time, from any start.
    ///   - rest: returns after so long, or when the task is cancelled.
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

    /// Admits a request, or says why not. Who is admitted calls `end()` when it is done, whatever came of it.
    ///
    /// - Parameters:
    ///   - priority: how much it matters.
    ///   - isExempt: asked only before a refusal; whether the request is served all the same, as checks of health must be.
    /// - Returns: `nil` if it is admitted.
    public func begin(_ priority: RequestPriority, isExempt: () -> Bool = { false }) -> RequestRefusal? {
        let lane = lane(priority), bits = published.load(ordering: .relaxed)
        guard let reason = reserve(priority, lane, bits) else {
            lane.admitted.add(1, ordering: .relaxed)
            return nil
        }
        return refuse(priority, lane, bits, reason, isExempt)
    }

    /// Admits a request, waiting for its turn for `policy.patience` at most, or says why not. Who is admitted calls `end()` when it is done, whatever came of it.
    ///
    /// Cancelled while it waits, it is refused.
    ///
    /// - Returns: `nil` if it is admitted.
    public func admit(_ priority: RequestPriority, isExempt: () -> Bool = { false }) async -> RequestRefusal? {
        let lane = lane(priority), bits = published.load(ordering: .relaxed)
        guard let reason = reserve(priority, lane, bits) else {
            lane.admitted.add(1, ordering: .relaxed)
            return nil
        }
        // A limit that memory has nothing to do with queues nothing, and a process that is held takes nothing on.
        if bits != ExtentWord.open, mayWait(priority, bits, reason), !isExempt() {
            let isAdmitted = await queue.wait(priority, atMost: policy.patience) { [self] in
                reserve(priority, lane, published.load(ordering: .relaxed), isWaiting: true) == nil
            }
            if isAdmitted {
                lane.admitted.add(1, ordering: .relaxed)
                return nil
            }
        }
        return refuse(priority, lane, published.load(ordering: .relaxed), reason, isExempt)
    }

    /// Whether waiting can help: not one that was thinned out, or others would be in its place.
    private func mayWait(_ priority: RequestPriority, _ bits: UInt16, _ reason: RequestRefusal.Reason) -> Bool {
        guard policy.patience > .zero, let row = ExtentWord.row(bits) else { return false }
        switch reason {
        case .concurrency: return true
        case .arrivals: return terms[row * 3 + Int(priority.rawValue)].threshold == 0
        case .paused: return false
        }
    }

    /// A request that was admitted is done.
    public func end() {
        // Sequentially consistent, as is the count of those who wait: either this sees a waiter, or that waiter sees the place.
        running.subtract(1, ordering: .sequentiallyConsistent)
        queue.admitNext()
    }

    /// How many wait for their turn now.
    public var waiting: Int { queue.count }

    /// Runs `body` if the request is admitted, waiting as `admit` does.
    ///
    /// - Throws: `RequestRefusal` if it is not; what `body` throws.
    public func run<Result>(_ priority: RequestPriority, isExempt: () -> Bool = { false }, _ body: () async throws -> Result) async throws -> Result {
        if let refusal = await admit(priority, isExempt: isExempt) { throw refusal }
        defer { end() }
        return try await body()
    }

    /// - Parameter isWaiting: one that waits already was not thinned out when it came.
    private func reserve(_ priority: RequestPriority, _ lane: Lane, _ bits: UInt16, isWaiting: Bool = false) -> RequestRefusal.Reason? {
        var most = policy.limit ?? .max
        if bits != ExtentWord.open {
            guard let row = ExtentWord.row(bits) else { return .paused }
            let terms = terms[row * 3 + Int(priority.rawValue)]
            if let threshold = terms.threshold, !isWaiting || threshold == 0 {
                let number = lane.arrivals.add(1, ordering: .relaxed).oldValue
                if Spread.word(number, from: starts[Int(priority.rawValue)]) >= threshold { return .arrivals }
            }
            most = terms.room(of: usual.load(ordering: .relaxed))
        }
        // Two that come at once may both be turned away where one had fitted; never are more admitted than fit.
        let now = running.add(1, ordering: .sequentiallyConsistent).newValue
        if now > most {
            running.subtract(1, ordering: .relaxed)
            return .concurrency
        }
        if bits == ExtentWord.open, now > peak.load(ordering: .relaxed) { peak.max(now, ordering: .relaxed) }
        return nil
    }

    private func refuse(
        _ priority: RequestPriority, _ lane: Lane, _ bits: UInt16, _ reason: RequestRefusal.Reason, _ isExempt: () -> Bool
    ) -> RequestRefusal? {
        if isExempt() {
            running.add(1, ordering: .relaxed)
            lane.admitted.add(1, ordering: .relaxed)
            lane.exempted.add(1, ordering: .relaxed)
            return nil
        }
        switch reason {
        case .concurrency: lane.tooMany.add(1, ordering: .relaxed)
        case .arrivals: lane.thinned.add(1, ordering: .relaxed)
        case .paused: lane.paused.add(1, ordering: .relaxed)
        }
        let extent = ExtentWord.read(bits), range = policy[retryAfter: extent.share] ?? recovery.range
        let word = Spread.word(refusals.add(1, ordering: .relaxed).oldValue, from: starts[RequestPriority.allCases.count])
        let seconds = range.lowerBound + Int(word.multipliedFullWidth(by: UInt64(range.count)).high)
        return RequestRefusal(shedder: name, priority: priority, reason: reason, extent: extent, retryAfterSeconds: seconds)
    }

    private func lane(_ priority: RequestPriority) -> Lane {
        switch priority {
        case .sheddable: lanes.0
        case .normal: lanes.1
        case .critical: lanes.2
        }
    }

    // MARK: Being told

    public func quiesce(to extent: QuiesceExtent) {
        let bits = ExtentWord.bits(extent)
        // One call at a time, so nobody stores between the load and the store.
        let before = published.load(ordering: .relaxed)
        if before == ExtentWord.open, bits != ExtentWord.open {
            usual.store(policy.limit ?? max(Self.leastUsual, peak.load(ordering: .relaxed)), ordering: .relaxed)
        }
        if bits == ExtentWord.open { peak.store(running.load(ordering: .relaxed), ordering: .relaxed) }
        published.store(bits, ordering: .sequentiallyConsistent)
        recovery.note(isShort: bits != ExtentWord.open)
        episodes.note(ExtentWord.read(bits), refusedInAll, at: elapsed())
        queue.admitAll()
    }

    /// How much may go on, as it was told last.
    public var extent: QuiesceExtent { ExtentWord.read(published.load(ordering: .relaxed)) }

    // MARK: Counting

    /// As limiters count. `limit` is that of `normal` requests; `Int.max` for none.
    public var statistics: ConcurrencyLimiter.Statistics {
        let counts = counts, bits = published.load(ordering: .relaxed)
        var limit = policy.limit ?? .max
        if bits != ExtentWord.open {
            limit = ExtentWord.row(bits).map { terms[$0 * 3 + Int(RequestPriority.normal.rawValue)].room(of: usual.load(ordering: .relaxed)) } ?? 0
        }
        return .init(
            running: running.load(ordering: .relaxed), waiting: waiting, limit: limit, admitted: counts.admitted.values.reduce(0, +),
            refused: counts.refused.keys.reduce(0) { $0 + counts.refused($1) }, expired: 0)
    }

    /// What it has done so far, by priority and reason.
    public var counts: RequestCounts {
        var counts = RequestCounts()
        for priority in RequestPriority.allCases {
            let lane = lane(priority)
            counts.admitted["\(priority)"] = lane.admitted.load(ordering: .relaxed)
            counts.exempted += lane.exempted.load(ordering: .relaxed)
            counts.refused["\(priority)"] = [
                RequestRefusal.Reason.concurrency.rawValue: lane.tooMany.load(ordering: .relaxed),
                RequestRefusal.Reason.arrivals.rawValue: lane.thinned.load(ordering: .relaxed),
                RequestRefusal.Reason.paused.rawValue: lane.paused.load(ordering: .relaxed),
            ]
        }
        return counts
    }

    public var requests: RequestCounts? { counts }
    public var refusedPerSecond: Double? { episodes.perSecond(refusedInAll, at: elapsed()) }

    /// What is to be told of what it sheds, and has not been yet.
    func takeNews() -> [ShedEpisodes.News] { episodes.takeNews(refusedInAll) }

    private var refusedInAll: ShedEpisodes.Counts {
        var counts = ShedEpisodes.Counts.zero
        func add(_ priority: RequestPriority) {
            let lane = lane(priority)
            counts[ShedEpisodes.index(priority, .concurrency)] = lane.tooMany.load(ordering: .relaxed)
            counts[ShedEpisodes.index(priority, .arrivals)] = lane.thinned.load(ordering: .relaxed)
            counts[ShedEpisodes.index(priority, .paused)] = lane.paused.load(ordering: .relaxed)
        }
        // Not by `allCases`: an array made anew each time, and this is on the path that frees memory.
        add(.sheddable)
        add(.normal)
        add(.critical)
        return counts
    }
}
