/// Learns a cache's miss curve from a sample of the requests: eight miniature caches, each for another size.
///
/// Requests are sampled by hash, so that all requests for a sampled key are seen. The smaller the size that a miniature
/// stands for, the more keys it samples: as many as fill its entries, but of a busy cache at most one in fifty. The
/// state takes 23 KiB, allocated once.
@usableFromInline
package struct CurveMeter: ~Copyable {
    /// Sizes of the miniatures, as parts of the largest.
    package static let sizes: [Double] = [1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1]
    /// Entries of each miniature. The large sizes need the most: by chance a loop that fits may not seem to.
    static let entries = [112, 112, 112, 112, 240, 240, 240, 240]
    /// Bytes of all miniatures.
    package static var byteCount: Int {
        entries.reduce(0) { $0 + MiniatureCache.byteCount(entries: $1) }
            + entries.count * MemoryLayout<Miniature>.stride
    }
    /// Requests after which shares are decided anew.
    package static let round = 10_000.0
    /// Bytes of an entry, as long as a cache has none.
    package static let usualCost = 1024.0
    /// Most that is sampled of the keys of the busiest caches: as many as give the smallest size some entries, within
    /// these parts.
    static let busySample = 0.005...0.02
    /// Hits in a row, for each entry, after which all that is requested is taken for known.
    private static let passes = 1.5
    /// Entries below which a miniature says nothing of the size.
    private static let fewestEntries = 4.0
    /// Sampled requests a second that take some 0.2 % of a processor: a cache with fewer samples more keys.
    static let freeSamples = 20_000.0
    /// Weight that a round's counts keep in the next, and after a change of the stream of requests.
    static let memory = 0.95, memoryAfterChange = 0.25
    /// Change of a size's miss ratio that is a change of the stream if it lasts for some rounds; the sampled requests in a
    /// round that show a change, and how many times larger than chance it must be. In a single round a loop is anywhere.
    private static let change = 0.05, changeRounds = 3, changeRequests = 100.0, changeErrors = 3.0
    /// Sampled requests of a size that are remembered, if a round has few of them.
    private static let sample = 200.0
    /// Least number of sampled requests, and of entries in the largest miniature, to draw conclusions from.
    private static let leastRequests = 32.0, leastEntries = 32
    /// A larger size is wrong.
    private static let mostBytes = 1 << 50
    /// Part of the entries that the sampled keys fill, so that a slow growth of the size changes the sample seldom.
    private static let filled = 0.8
    /// Changes of the sampled part that are worth a change where the rate of requests asks for fewer keys, and where more
    /// would do: what was learnt is lost then.
    private static let fewer = 1.5, more = 3.0

    private struct Miniature {
        var cache: MiniatureCache
        /// Part of the keys that is sampled.
        var part = 0.0
        /// Largest sampled position.
        var threshold: UInt32 = 0
        /// True if so few entries are sampled that the miniature says nothing of the size.
        var isTooSmall = false
        /// Requests of the rounds so far, sampled or not. Like the other counts, those of a round weigh less in the next.
        var seen = 0.0
        var requests = 0.0
        var misses = 0.0
        /// Requests and misses at the begin of the round.
        var before = (requests: 0.0, misses: 0.0)

        /// Hits since the last miss.
        var hits = 0
        /// Rounds in a row with more misses than before; negative for fewer.
        var changes = 0

        /// True if for some rounds more requests, or fewer, have missed than before.
        var hasChanged: Bool { abs(changes) >= CurveMeter.changeRounds }

        /// Returns 1 if in this round more requests missed than in those before, -1 if fewer did, else 0.
        var change: Int {
            let now = (requests: requests - before.requests, misses: misses - before.misses)
            guard min(now.requests, before.requests) >= CurveMeter.changeRequests else { return 0 }
            let usual = before.misses / before.requests, chance = min(max(usual, 0.05), 0.95)
            let error = (chance * (1 - chance) / now.requests).squareRoot()
            let difference = now.misses / now.requests - usual
            guard abs(difference) > max(CurveMeter.change, CurveMeter.changeErrors * error) else { return 0 }
            return difference > 0 ? 1 : -1
        }

        /// Weight that the counts keep in the next round. Few requests of a size are remembered for longer.
        func memory(_ usual: Double) -> Double {
            usual < CurveMeter.memory ? usual : max(usual, 1 - (requests - before.requests) / CurveMeter.sample)
        }

        /// Samples another part of the keys.
        mutating func sample(_ wanted: Double) {
            let threshold = UInt32(wanted * Double(UInt32.max)), isMore = wanted > part
            cache.keep { CurveMeter.position(of: $0) <= threshold }
            // Of fewer keys there would have been so many fewer requests. More keys are yet unknown to the cache.
            let kept = isMore || part == 0 ? 0 : wanted / part
            (requests, misses) = (requests * kept, misses * kept)
            before = (before.requests * kept, before.misses * kept)
            if isMore { seen = 0 }
            (self.part, self.threshold) = (wanted, threshold)
        }

        /// Returns the bytes of all keys that are requested, if they fit; `nil` if the miniature is full, or if new keys
        /// come.
        func all(_ meanCost: Double) -> Int? {
            guard part > 0, cache.count < cache.mostEntries, Double(cache.cost) + 2 * meanCost < Double(cache.capacity),
                Double(hits) > CurveMeter.passes * Double(cache.count)
            else { return nil }
            return Int(Double(cache.cost) / part)
        }

        mutating func forget(_ kept: Double) {
            (seen, requests, misses) = (seen * kept, requests * kept, misses * kept)
        }
    }

    /// The entries of all miniatures; `nil` if the meter does not learn.
    private var entries: UnsafeMutableRawPointer?
    private var miniatures: [Miniature] = []
    /// Bytes that the largest miniature stands for.
    private var largest = 0
    private var requests = 0.0
    /// Requests a second of the busiest of the last rounds.
    private var rate = 0.0
    /// Requests and misses of the cache itself, while it held about as much as now.
    private var real = (requests: 0.0, misses: 0.0)
    private var cliff = Cliff()
    private var meanCost = CurveMeter.usualCost

    /// Creates a meter that does not learn yet, and has no memory.
    package init() {}

    deinit { entries?.deallocate() }

    /// True between `start` and `stop`.
    package var isLearning: Bool { entries != nil }

    /// Starts to learn. Samples nothing before the first `measure`.
    package mutating func start() {
        guard entries == nil else { return }
        let count = Self.entries.reduce(0) { $0 + MiniatureCache.byteCount(entries: $1) }
        let memory = UnsafeMutableRawPointer.allocate(byteCount: count, alignment: 16)
        memory.initializeMemory(as: UInt8.self, repeating: 0, count: count)
        var next = memory
        miniatures = Self.entries.map { entries in
            defer { next += MiniatureCache.byteCount(entries: entries) }
            return Miniature(cache: MiniatureCache(at: next, entries: entries))
        }
        entries = memory
    }

    /// Stops and forgets what was learnt.
    package mutating func stop() {
        miniatures = []
        entries?.deallocate()
        entries = nil
        (requests, real, rate, threshold, weight, cliff) = (0, (0, 0), 0, 0, 0, Cliff())
    }

    /// Returns the number that decides if a hash is sampled. Spreads hashes of which other bits select shards and cells.
    @inlinable
    package static func position(of hash: UInt32) -> UInt32 { hash &* 0x9E37_79B1 }

    /// Requests with a position up to this are sampled; zero samples hardly any.
    package private(set) var threshold: UInt32 = 0

    /// Requests that a sampled one stands for.
    package private(set) var weight = 0.0

    /// Sets the sizes that the miniatures stand for. Keeps what was learnt if they hardly change. Call between rounds.
    ///
    /// - Parameters:
    ///   - bytes: the most that the cache may hold.
    ///   - meanCost: the bytes of an entry, on average.
    ///   - rate: requests a second in the last round, if known.
    package mutating func measure(upTo bytes: Int, meanCost: Double, perSecond rate: Double? = nil) {
        let cost = meanCost.isFinite ? max(1, meanCost) : 1
        self.meanCost = cost
        largest = min(max(1, bytes), Self.mostBytes)
        if let rate, rate.isFinite { self.rate = max(rate, self.rate * Self.memory) }
        let some = 2 * Self.fewestEntries * cost / (Self.sizes[0] * Double(largest))
        let busy = min(max(some, Self.busySample.lowerBound), Self.busySample.upperBound)
        let most = min(1, max(busy, self.rate > 0 ? Self.freeSamples / self.rate : 0))
        for index in miniatures.indices {
            let size = Self.sizes[index] * Double(largest)
            // With more keys than entries, the miniature would stand for a smaller size.
            let fitting = Double(Self.entries[index]) * cost / size, part = miniatures[index].part
            let wanted = min(most, fitting * Self.filled)
            if part > fitting || part > most * Self.fewer || part * Self.more < wanted {
                miniatures[index].sample(wanted)
            }
            let capacity = size * miniatures[index].part
            miniatures[index].isTooSmall = capacity < Self.fewestEntries * cost
            miniatures[index].cache.resize(to: Int(min(capacity, 1e15)))
        }
        threshold = miniatures.reduce(0) { max($0, $1.threshold) }
        weight = 1 / max(1e-9, miniatures.reduce(0) { max($0, $1.part) })
    }

    /// Counts a sampled look-up. Returns true if some size lacks the entry: then `insert` takes it in, if the cache has
    /// the entry, or as soon as the cache does.
    package mutating func lookUp(_ hash: UInt32) -> Bool {
        let position = Self.position(of: hash)
        var isLacking = false
        // Without the checks of each access: a sampled request should take no longer than some look-ups.
        miniatures.withUnsafeMutableBufferPointer { miniatures in
            for index in miniatures.indices where position <= miniatures[index].threshold {
                miniatures[index].requests += 1
                guard !miniatures[index].cache.use(hash) else {
                    miniatures[index].hits += 1
                    continue
                }
                miniatures[index].hits = 0
                miniatures[index].misses += 1
                isLacking = true
            }
        }
        return isLacking
    }

    /// Takes in a sampled entry that was inserted or replaced.
    package mutating func insert(_ hash: UInt32, cost: Int) {
        let position = Self.position(of: hash), cost = UInt32(clamping: cost)
        for index in miniatures.indices where position <= miniatures[index].threshold {
            miniatures[index].cache.insert(hash, cost: cost)
        }
    }

    /// Removes a sampled entry that was removed because its content was no longer valid.
    package mutating func remove(_ hash: UInt32) {
        let position = Self.position(of: hash)
        for index in miniatures.indices where position <= miniatures[index].threshold {
            miniatures[index].cache.remove(hash)
        }
    }

    /// Ends a round, and returns the curve.
    ///
    /// - Parameters:
    ///   - count: requests in the round, sampled or not.
    ///   - missed: those that found nothing.
    ///   - held: bytes that the cache held throughout; `nil` if the cache held now more, now less.
    package mutating func endRound(requests count: Int, misses missed: Int, held: Int?) -> MissCurve {
        let count = max(0, count), missed = max(0, missed)
        // Another stream has another curve, so most of what was learnt is forgotten.
        for index in miniatures.indices {
            let change = miniatures[index].change, changes = miniatures[index].changes
            miniatures[index].changes = changes * change < 0 ? change : change == 0 ? 0 : changes + change
        }
        let hasChanged = miniatures.contains { $0.hasChanged }, kept = hasChanged ? Self.memoryAfterChange : Self.memory
        // A change of the stream changes the misses. The requests weigh as much as those of the other caches.
        requests = requests * Self.memory + Double(count)
        if held != nil {
            real = (real.requests * kept + Double(count), real.misses * kept + Double(missed))
        } else {
            real = (0, 0)
        }
        var points: [MissCurve.Point] = [], parts: [Double] = []
        // All that is requested, if it fits: the misses fall no further from there on.
        var end: (all: MissCurve.Point, part: Double, size: Int, entries: Int)?
        for index in miniatures.indices {
            miniatures[index].seen += Double(count)
            let miniature = miniatures[index]
            // By the sampled part of keys, not of requests: a popular key in the sample, or none, then changes only the
            // hits (as SHARDS-adj: Waldspurger et al., FAST 2015).
            let seen = miniature.part * miniature.seen
            let ratio = miniature.requests > 0 ? min(1, miniature.misses / seen) : 1
            if !miniature.isTooSmall {
                let size = Int(Self.sizes[index] * Double(largest))
                if end == nil, let all = miniature.all(meanCost) {
                    let bytes = max(all, (points.last?.bytes ?? 0) + 1)
                    end = (.init(bytes: bytes, misses: requests * ratio), miniature.part, size, miniature.cache.count)
                }
                points.append(.init(bytes: size, misses: requests * ratio))
                parts.append(miniature.part)
            }
            miniatures[index].forget(miniature.memory(kept))
            miniatures[index].before = (miniatures[index].requests, miniatures[index].misses)
        }
        let isReliable = miniatures.last.map {
            $0.requests >= Self.leastRequests * Self.memory && $0.cache.count >= Self.leastEntries
        }
        var curve = MissCurve(requests: requests, points: points, isReliable: isReliable ?? false)
        if hasChanged { cliff = Cliff() }
        if let held, count > 0 {
            cliff.note(
                Double(missed) / Double(count), of: count, at: held, entries: Double(held) / meanCost, curve,
                end: end?.size)
        }
        if var end {
            end.all.bytes = min(cliff.end(end.all.bytes, entries: end.entries), end.size - 1)
            let place = curve.points.firstIndex { $0.bytes > end.all.bytes } ?? parts.count
            curve = MissCurve(requests: requests, points: curve.points + [end.all], isReliable: curve.isReliable)
            parts.insert(end.part, at: place)
        }
        if let held, real.requests > 0 {
            curve = curve.through(misses: requests * real.misses / real.requests, at: held, parts: parts)
        }
        return cliff.applied(to: curve)
    }
}
