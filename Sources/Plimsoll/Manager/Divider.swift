import Synchronization

/// Decides how caches without a limit of their own share the memory for caches, from the miss curves that they learn.
/// Runs on the purge worker, after each `CurveMeter.round` requests of a cache, and at the latest after `longestRound`.
package final class Divider: Sendable {
    /// Wakes the manager when a cache has had enough requests for another round.
    final class Bell: Sendable {
        // Relaxed: a ring that is noticed a turn late delays a round.
        private let isRung = Atomic<Bool>(false)
        private let wake: @Sendable () -> Void

        init(wake: @escaping @Sendable () -> Void) { self.wake = wake }

        func ring() { if !isRung.exchange(true, ordering: .relaxed) { wake() } }
        var hasRung: Bool { isRung.load(ordering: .relaxed) }
        func silence() { isRung.store(false, ordering: .relaxed) }
    }

    /// A move of memory from some caches to others, in one or more steps.
    struct Move: Sendable {
        struct Change: Sendable {
            var name: String
            var before: Int
            var after: Int
        }

        /// Times of the first and the last step.
        var began: Duration
        var at: Duration
        /// Load time saved in the end, as part of the load time that memory can save at all.
        var gain: Double
        var changes: [Change]
    }

    private struct State {
        /// Shares of the last round, by cache.
        var shares: [ObjectIdentifier: Int] = [:]
        var roundAt = Duration.zero
        var isDue = false
        var rounds = 0
        /// The last moves, oldest first.
        var moves: [Move] = []
        /// The share of the process; `nil` if no supervisor divides memory.
        var process: ProcessShare?
        /// The worth of memory to all caches, as of the last round; `nil` if unknown.
        var offer: WorthOffer?
        /// Bytes that may still be allocated, at the last reading.
        var room = Int.max
        /// Most bytes on the meter: the share of the process, and what caches hold that take no part; `nil` for no bound.
        var ceiling: Int?
        var hasEnded = false
    }

    /// Number of rounds that have ended. For tests.
    var rounds: Int { state.withLock { $0.rounds } }

    /// The last moves, oldest first.
    var moves: [Move] { state.withLock { $0.moves } }
    static let mostMoves = 16

    /// Longest and shortest time between rounds.
    static let longestRound = Duration.seconds(10)
    static let shortestRound = Duration.milliseconds(100)

    private let state = Mutex(State())
    private let registry: PurgeableRegistry
    private let pool: PurgeableRegistry.Pool
    private let meter: ChargeMeter
    private let time: Timekeeper
    private let bell: Bell

    /// Creates a divider of the memory that `meter` bounds.
    package init(
        of pool: PurgeableRegistry.Pool = .heap, registry: PurgeableRegistry, meter: ChargeMeter, time: Timekeeper,
        wake: @escaping @Sendable () -> Void
    ) {
        (self.pool, self.registry, self.meter, self.time) = (pool, registry, meter, time)
        bell = Bell(wake: wake)
    }

    /// The worth of memory to all caches in sum, with the bytes held now; `nil` unless a supervisor has asked.
    package var offer: WorthOffer? {
        guard var offer = state.withLock({ $0.offer }) else { return nil }
        offer.held = entries.reduce(0) { $0 + ($1.isShared ? Self.held($1) : 0) }
        return offer
    }

    /// The caches that declare their memory on the meter.
    private var entries: [PurgeableRegistry.Entry] {
        registry.snapshot.filter { $0.shared != nil && $0.pool == pool }
    }

    private static func held(_ entry: PurgeableRegistry.Entry) -> Int {
        min(max(0, entry.purgeable.heldBytes), ReleasePass.mostHeld)
    }

    /// Sets the share of this process among the processes of a supervisor; `nil` for none, if the supervisor is gone.
    package func share(_ share: ProcessShare?) {
        let isNew = state.withLock { state in
            defer { state.process = share }
            if share == nil { state.offer = nil }
            if share?.bytes == nil { state.ceiling = nil }
            return state.process != share
        }
        if isNew { bell.ring() }
    }

    /// Returns what caches may still take by the share of the process, `nil` for any number, and notes what they may take
    /// without the share. Allocates nothing.
    ///
    /// - Parameters:
    ///   - held: bytes on the meter.
    ///   - room: bytes that may be allocated before memory is at its limit; `nil` for any number.
    func allowance(held: ByteCount, room: ByteCount?) -> ByteCount? {
        state.withLock { state in
            state.room = room?.bytes ?? .max
            return state.ceiling.map { max(.zero, ByteCount($0) - held) }
        }
    }

    /// Returns true if a round is due, and requests that. Allocates nothing.
    func request(at now: Duration) -> Bool {
        state.withLock { state in
            let since = now - state.roundAt
            let isDue = since < .zero || since >= Self.longestRound || bell.hasRung && since >= Self.shortestRound
            if isDue { (state.isDue, state.roundAt) = (true, now) }
            return isDue
        }
    }

    /// Runs a requested round. Returns false if the thread was replaced meanwhile.
    func run(_ turn: Worker.Turn) -> Bool {
        guard state.withLock({ exchange(&$0.isDue, false) }) else { return true }
        defer { state.withLock { $0.rounds += 1 } }
        return round { entry, body in turn.call(entry.name, at: time.elapsed(), body) }
    }

    /// Ends dividing, also by a round under way: caches that outlive the manager learn no more, and have no share.
    func end() {
        state.withLock { $0.hasEnded = true }
        for entry in entries { entry.stopSharing() }
        // Caches refer to their meter, and a meter to the caches that make room for others.
        meter.share(from: [], lacking: 0)
    }

    private var hasEnded: Bool { state.withLock { $0.hasEnded } }

    /// Runs `body`, which calls the cache, unless the registration has ended.
    private func inside(_ entry: PurgeableRegistry.Entry, _ body: () -> Void) {
        _ = entry.gate.call(at: time.elapsed()) {
            body()
            // After that call: `end` may have come before or during the call.
            if hasEnded { entry.stopSharing() }
        }
    }

    /// Runs a round. Calls caches through `call`, which returns false if the round should end.
    @discardableResult
    package func round(call: (PurgeableRegistry.Entry, () -> Void) -> Bool) -> Bool {
        bell.silence()
        let all = entries, entries = all.filter { $0.isShared }
        let (process, line) = state.withLock { ($0.process, $0.room) }
        // A limit that was set by hand meanwhile ends a cache's part.
        for entry in all where !entry.isShared {
            guard call(entry, { leave(entry) }) else { return false }
        }
        // With one cache there is nothing to divide, and nothing is sampled, unless there are other processes.
        guard entries.count > 1 || process != nil && !entries.isEmpty else {
            meter.share(from: [], lacking: 0)
            state.withLock { ($0.offer, $0.ceiling) = (nil, nil) }
            return entries.allSatisfy { entry in call(entry) { leave(entry) } }
        }
        let held = entries.map(Self.held)
        let sum = held.reduce(0, +), budget = min(sum + min(meter.room, sum), process?.bytes ?? .max)
        guard let learnt = learn(entries, upTo: max(budget, process?.total ?? 0), call) else { return false }
        let times = loadTimes(entries, learnt)
        let holders = entries.indices.map { index in
            let isPrecious = entries[index].rebuildCost == .precious
            return Division.Holder(
                held: held[index], curve: learnt[index]?.curve, loadTime: times[index],
                least: isPrecious ? held[index] : 0)
        }
        let before = state.withLock { state in
            zip(entries, held).map { state.shares[ObjectIdentifier($0.purgeable)] ?? $1 }
        }
        let isDivided = process?.bytes != nil || holders.count { $0.known != nil } > 1
        let result = isDivided ? Division.next(holders, from: before, budget: budget) : nil
        note(result, entries, before)
        for (index, entry) in entries.enumerated() {
            // Inside the gate: a cache whose registration has ended since gets no share.
            inside(entry) {
                // Zero would stand for no share.
                entry.setShare(result.map { max(1, $0.shares[index]) })
                entry.worth.withLock { worth in
                    guard let result, let curve = holders[index].known else { return worth = nil }
                    worth = CacheWorth(
                        curve: curve, share: result.shares[index], target: result.target[index],
                        requestsPerSecond: learnt[index]?.rate ?? worth?.requestsPerSecond ?? 0, loadTime: times[index])
                }
            }
        }
        publish(entries, held, result?.shares)
        guard let process else { return true }
        var curve = Division.sum(perSecond(holders, learnt), upTo: process.total)
        if !curve.isReliable {
            // The shape is not known yet, but that memory is wanted.
            let load = zip(learnt, times).reduce(0) { $0 + ($1.0?.rate ?? 0) * $1.1 }
            curve = MissCurve(requests: load, points: [], isReliable: false)
        }
        let offer = WorthOffer(held: sum, room: line, curve: curve), others = max(0, meter.heldBytes.bytes - sum)
        state.withLock { state in
            // The supervisor may have gone meanwhile.
            guard let process = state.process else { return }
            state.offer = offer
            state.ceiling = process.bytes.map { $0 + others }
        }
        return release(sum - (process.bytes ?? .max), of: entries, holding: sum, call)
    }

    /// Ends the part of `entry` in sharing memory, unless the registration has ended.
    private func leave(_ entry: PurgeableRegistry.Entry) {
        inside(entry) { entry.stopSharing() }
    }

    /// Ends the round of each cache. Returns `nil` if the round should end.
    private func learn(
        _ entries: [PurgeableRegistry.Entry], upTo bytes: Int, _ call: (PurgeableRegistry.Entry, () -> Void) -> Bool
    ) -> [Learnt?]? {
        var learnt: [Learnt?] = []
        for entry in entries {
            var round: Learnt?
            let inCharge = call(entry) { [bell] in
                inside(entry) {
                    entry.shared?.learn { bell.ring() }
                    round = entry.shared?.endRound(upTo: bytes, at: time.elapsed())
                }
            }
            guard inCharge else { return nil }
            learnt.append(round)
        }
        return learnt
    }

    /// Returns the holders with curves of the requests in a second, so that processes can be compared.
    private func perSecond(_ holders: [Division.Holder], _ learnt: [Learnt?]) -> [Division.Holder] {
        zip(holders, learnt).map { holder, learnt in
            var holder = holder
            holder.curve = holder.known.flatMap { curve in learnt?.rate.map { curve.scaled(to: $0) } }
            return holder
        }
    }

    /// Least part of the caches whose release is worth a call of the allocator.
    private static let leastReturned = 1.0 / 64

    /// Evicts what the caches hold beyond the share of the process, from caches above their own share, and returns the
    /// memory to the system, as other processes are to have that.
    private func release(
        _ excess: Int, of entries: [PurgeableRegistry.Entry], holding sum: Int,
        _ call: (PurgeableRegistry.Entry, () -> Void) -> Bool
    ) -> Bool {
        guard excess > 0 else { return true }
        var left = excess
        for entry in entries where left > 0 {
            let inCharge = call(entry) {
                inside(entry) { left -= entry.shared?.evictAboveShare(left) ?? 0 }
            }
            guard inCharge else { return false }
        }
        if Double(excess - left) > Double(sum) * Self.leastReturned { HeapAllocator.current.giveBack(.full) }
        return true
    }

    /// Keeps the shares for the next round, and the moves for people. Steps within `longestRound` are one move.
    private func note(_ result: Division.Result?, _ entries: [PurgeableRegistry.Entry], _ before: [Int]) {
        let now = time.elapsed()
        state.withLock { state in
            state.shares = [:]
            guard let result else { return }
            for (entry, share) in zip(entries, result.shares) {
                state.shares[ObjectIdentifier(entry.purgeable)] = share
            }
            guard result.hasMoved else { return }
            var move = Move(
                began: now, at: now, gain: result.gain,
                changes: entries.indices.map {
                    .init(name: entries[$0].name, before: before[$0], after: result.shares[$0])
                })
            if let last = state.moves.last, last.changes.map(\.name) == move.changes.map(\.name),
                now >= last.began, now - last.began < Self.longestRound
            {
                (move.began, move.gain) = (last.began, max(last.gain, move.gain))
                for index in move.changes.indices { move.changes[index].before = last.changes[index].before }
                state.moves.removeLast()
            }
            state.moves.append(move)
            if state.moves.count > Self.mostMoves { state.moves.removeFirst() }
        }
    }

    /// Sets who makes room for whom at the limit of memory.
    private func publish(_ entries: [PurgeableRegistry.Entry], _ held: [Int], _ shares: [Int]?) {
        guard let shares else { return meter.share(from: [], lacking: 0) }
        let excess = entries.indices.map { held[$0] - shares[$0] }
        let donors = entries.indices.filter { excess[$0] > 0 }.sorted { excess[$0] > excess[$1] }
        meter.share(from: donors.compactMap { entries[$0].shared }, lacking: excess.reduce(0) { $0 + max(0, -$1) })
        // The end of a registration ends the sharing of all until the next round, and the end of the manager for good.
        // This call may have come after that.
        if hasEnded || entries.contains(where: { $0.gate.isClosed }) { meter.share(from: [], lacking: 0) }
    }

    /// Returns the time of a load of each cache in nanoseconds. A cache without loads gets the median of the others, or
    /// else the time that its class of cost stands for.
    private func loadTimes(_ entries: [PurgeableRegistry.Entry], _ learnt: [Learnt?]) -> [Double] {
        let known = learnt.compactMap { $0?.loadTime }.sorted()
        return zip(entries, learnt).map { entry, learnt in
            learnt?.loadTime ?? (known.isEmpty ? entry.rebuildCost.usualNanoseconds : known[known.count / 2])
        }
    }
}

extension RebuildCost {
    /// Time of a load of that class, where no load has been measured.
    fileprivate var usualNanoseconds: Double {
        switch self {
        case .trivial: 1e4
        case .cheap: 1e6
        case .expensive: 3e7
        case .precious: 1e9
        }
    }
}
