import CPlimsollMemory
import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll

/// The eviction policy of a volatile cache, compared with `VolatileReference` request by request. A failing history is
/// shrunk to a short one.
@Suite(.serialized, .timeLimit(.minutes(5))) struct VolatilePolicyTests {
    enum Request: CustomStringConvertible {
        /// Looks a key up, and inserts the key on a miss.
        case ask(Int, size: Int)
        case insert(Int, size: Int)
        case remove(Int)
        case release(Int)
        case limit(Int)
        /// The kernel takes a page of a sealed segment.
        case take(isMain: Bool, place: Int, page: Int)
        case notice

        var description: String {
            switch self {
            case .ask(let key, let size): "ask(\(key), size: \(size))"
            case .insert(let key, let size): "insert(\(key), size: \(size))"
            case .remove(let key): "remove(\(key))"
            case .release(let bytes): "release(\(bytes))"
            case .limit(let bytes): "limit(\(bytes))"
            case .take(let isMain, let place, let page): "take(isMain: \(isMain), place: \(place), page: \(page))"
            case .notice: "notice"
            }
        }
    }

    /// Returns the requests of one seed: a few keys that are requested often, scans, and now and then another
    /// operation.
    private static func history(_ seed: UInt64, _ count: Int) -> (limit: Int, requests: [Request]) {
        var random = SeededGenerator(seed: seed)
        // Histories with reclaimed pages have so few entries that no page of the index is ever full. A full page of the
        // index would be cleared of lost entries, and the model does not describe that.
        let takes = seed % 3 == 0, limits = takes ? [40 << 10, 200 << 10] : [40 << 10, 200 << 10, 1 << 20, 3 << 20]
        let limit = limits.randomElement(using: &random)!, most = takes ? 3000 : [100, 1000, 3000].randomElement(using: &random)!
        let rarely = seed % 2 == 0 ? 20 : 400
        func size() -> Int {
            switch Int.random(in: 0..<rarely, using: &random) {
            case 0: .random(in: 4000...30_000, using: &random)
            case 1: .random(in: 0...10, using: &random)
            default: .random(in: 1...most, using: &random)
            }
        }
        // Three times as many keys as fit.
        let keys = max(40, limit * 3 / most), hot = max(4, keys / 20)
        var requests: [Request] = [], scan = 1_000_000
        while requests.count < count {
            let key =
                Int.random(in: 0..<100, using: &random) < 60 ? Int.random(in: 0..<hot, using: &random) : Int.random(in: 0..<keys, using: &random)
            switch Int.random(in: 0..<1000, using: &random) {
            case 0..<700: requests.append(.ask(key, size: size()))
            case 700..<900: requests.append(.insert(key, size: size()))
            case 900..<950: requests.append(.remove(key))
            case 950..<955: requests.append(.release(.random(in: 0...limit, using: &random)))
            case 955..<958: requests.append(.limit(limits.randomElement(using: &random)! / Int.random(in: 1...3, using: &random)))
            case 958..<970:
                for _ in 0..<Int.random(in: 1...60, using: &random) {
                    scan += 1
                    requests.append(.ask(scan, size: size()))
                }
            case 970..<995 where takes:
                requests.append(
                    .take(isMain: .random(using: &random), place: .random(in: 0..<100, using: &random), page: .random(in: 0..<8, using: &random)))
            case 995..<1000 where takes: requests.append(.notice)
            default: break
            }
        }
        return (limit, requests)
    }

    /// The number of events of each kind in a history.
    struct Use {
        var hits = 0, promotions = 0, turns = 0, returns = 0, lost = 0
    }

    /// Serves the requests by the store and by the model. Returns the first difference, if there is one.
    private static func run(_ limit: Int, _ requests: [Request], _ use: inout Use) -> String? {
        // The memory is ordinary, so that the kernel takes only the pages that the history names.
        let store = VolatileStore(limit: limit, allowsHugePages: false, isVolatile: false, time: .running)
        var model = VolatileReference(limit: limit)
        for (number, request) in requests.enumerated() {
            let (real, expected) = serve(request, store, &model, &use)
            let why = real == expected ? difference(store, model) : "\(real), not \(expected)"
            if let why { return "request \(number), \(request): \(why)" }
        }
        (use.promotions, use.turns, use.returns) = (use.promotions + model.promotions, use.turns + model.turns, use.returns + model.returns)
        use.lost += model.droppedByKernel
        return nil
    }

    private static func serve(
        _ request: Request, _ store: VolatileStore, _ model: inout VolatileReference, _ use: inout Use
    ) -> (real: Int, expected: Int) {
        switch request {
        case .ask(let key, let size):
            let (real, expected) = (find(key, store), model.ask(key))
            if real { use.hits += 1 }
            guard real == expected, !real else { return (real ? 1 : 0, expected ? 1 : 0) }
            return serve(.insert(key, size: size), store, &model, &use)
        case .insert(let key, let size):
            let value = [UInt8](repeating: UInt8(truncatingIfNeeded: key), count: size)
            let real = withKey(key) { key, hash in
                value.withUnsafeBytes { store.insert(hash, key, $0, timeToLive: nil, tags: [], of: nil, isSame: { _ in false }) }
            }
            return (real ? 1 : 0, model.insert(key, size) ? 1 : 0)
        case .remove(let key):
            withKey(key) { key, hash in if let found = store.find(hash, key, isSame: { _ in false }) { store.remove(found) } }
            model.remove(key)
            return (0, 0)
        case .release(let bytes): return (store.release(bytes), model.release(bytes))
        case .limit(let bytes):
            store.setLimit(bytes)
            model.setLimit(bytes)
            return (0, 0)
        case .take(let isMain, let place, let page):
            let queue = isMain ? model.main : model.small
            guard !queue.isEmpty else { return (0, 0) }
            let place = place % queue.count, pages = queue[place].frontier / PageLayout.page
            guard queue[place].isSealed, pages > 0 else { return (0, 0) }
            model.take(isMain, place, page: page % pages)
            let isTaken = store.withLog(false) { log in
                guard let base = log.segments(isMain).dropFirst(place).first?.base else { return false }
                return plimsoll_drop(base + page % pages * PageLayout.page, PageLayout.page) == 0
            }
            return (isTaken ? 1 : 0, 1)
        case .notice:
            let found = store.withLog(0) { log in
                log.isVolatile = true
                defer { log.isVolatile = false }
                return log.noticeDrops()
            }
            return (found, model.noticeDrops())
        }
    }

    private static func withKey<Result>(_ key: Int, _ body: (UnsafeRawBufferPointer, UInt64) -> Result) -> Result {
        withUnsafeBytes(of: key) { body($0, VolatileReference.hash(key)) }
    }

    /// Looks a key up like `VolatileCache`.
    private static func find(_ key: Int, _ store: VolatileStore) -> Bool {
        withKey(key) { bytes, hash in
            guard let found = store.find(hash, bytes, isSame: { _ in false }) else { return false }
            let value = UnsafeMutableRawBufferPointer.allocate(byteCount: max(1, found.count), alignment: 16)
            defer { value.deallocate() }
            guard store.copy(found, to: UnsafeMutableRawBufferPointer(rebasing: value[..<found.count])) else {
                #expect(!store.hasMoved(found))
                return false
            }
            if !value[..<found.count].allSatisfy({ $0 == UInt8(truncatingIfNeeded: key) }) { Issue.record("another value under \(key)") }
            store.noteHit(found, hash)
            return true
        }
    }

    private static func difference(_ store: VolatileStore, _ model: borrowing VolatileReference) -> String? {
        var mine: [Int] = []
        for segment in model.small + model.main {
            mine += [segment.isMain ? 1 : 0, segment.isSealed ? 1 : 0, segment.end, segment.frontier, segment.liveCount, segment.liveBytes]
        }
        let numbers = [model.liveCount, model.liveBytes, model.mapped, model.evictions, model.purged, model.droppedByKernel]
        return store.withLog(nil) { log in
            let counts = log.counts
            let real = [log.liveCount, log.liveBytes, log.mapped, counts.evictions, counts.purged, counts.droppedByKernel]
            if real != numbers { return "count, bytes, mapped, evicted, purged, dropped are \(real), not \(numbers)" }
            let sealed = (log.segments(false) + log.segments(true)).filter(\.isSealed).reduce(0) { $0 + $1.frontier - $1.lost }
            if log.sealed != sealed { return "bytes of sealed segments are \(log.sealed), not \(sealed)" }
            var segments: [Int] = []
            for segment in log.segments(false) + log.segments(true) {
                segments += [segment.isMain ? 1 : 0, segment.isSealed ? 1 : 0, segment.end, segment.frontier, segment.liveCount, segment.liveBytes]
            }
            return segments == mine ? nil : "segments (is main, is sealed, end, frontier, count, bytes) are \(segments), not \(mine)"
        }
    }

    /// Returns the shortest failing history that was found. Removes smaller and smaller parts, as long as the rest
    /// still fails.
    private static func shrink(_ limit: Int, _ requests: [Request]) -> (requests: [Request], why: String) {
        var (requests, why) = (requests, ""), use = Use(), runs = 0
        var part = max(1, requests.count / 2)
        while runs < 600 {
            var start = 0, isShorter = false
            while start < requests.count, runs < 600 {
                var rest = requests
                rest.removeSubrange(start..<min(start + part, rest.count))
                runs += 1
                if let problem = run(limit, rest, &use) { (requests, why, isShorter) = (rest, problem, true) } else { start += part }
            }
            if part == 1, !isShorter { break }
            part = max(1, part / 2)
        }
        return (requests, why)
    }

    @Test func `hits and evictions match the plain model, request by request`() {
        var use = Use()
        for seed in seeds(24) {
            let (limit, requests) = Self.history(seed, 1500)
            guard let why = Self.run(limit, requests, &use) else { continue }
            let short = Self.shrink(limit, requests)
            Issue.record(
                "PLIMSOLL_SEED=\(seed): \(why)\nin short, limit \(limit): \(short.requests.map(\.description).joined(separator: ", ")): \(short.why)")
            return
        }
        #expect(use.hits > 0 && use.promotions > 0 && use.turns > 0 && use.returns > 0 && use.lost > 0, "\(use)")
    }

    // MARK: In words

    private static func store(_ limit: Int) -> VolatileStore {
        VolatileStore(limit: limit, allowsHugePages: false, isVolatile: false, time: .running)
    }

    private static func insert(_ key: Int, _ store: VolatileStore, size: Int = 1000) {
        var model = VolatileReference(limit: 1), use = Use()
        _ = serve(.insert(key, size: size), store, &model, &use)
    }

    @Test func `a scan of any length leaves the used entries`() {
        let store = Self.store(1 << 20)
        for key in 0..<200 { Self.insert(key, store) }
        for key in 0..<200 { #expect(Self.find(key, store)) }
        for key in 1000..<20_000 { Self.insert(key, store) }
        #expect((0..<200).allSatisfy { Self.find($0, store) })
    }

    @Test func `an entry used once stays for one turn of the main queue, and an unused entry leaves before`() {
        let store = Self.store(512 << 10)
        for key in 0..<100 { Self.insert(key, store) }
        for key in 0..<50 { #expect(Self.find(key, store)) }
        // New entries that are requested again turn the main queue over.
        var key = 1000
        while store.statistics.evictions < 2000 {
            Self.insert(key, store)
            _ = Self.find(key, store)
            key += 1
        }
        #expect(!(0..<100).contains { Self.find($0, store) })
    }

    @Test func `a large entry leaves after four turns even if used after each, and the next insert counts anew`() {
        let store = Self.store(1 << 20)
        for key in 0..<5 { Self.insert(key, store, size: 20_000) }
        // Readers take no lock, so other threads may do this between any two turns of an insert.
        func use(_ keys: Range<Int>) { for key in keys { for _ in 0..<3 { _ = Self.find(key, store) } } }
        func turn() -> Bool { store.withLog(false) { $0.evictNext() } }
        var turns = 0
        while store.statistics.evictions == 0, turns < 100 {
            use(0..<5)
            #expect(turn())
            turns += 1
        }
        #expect(store.statistics.evictions == 1 && turns == 4 * 5 + 1)
        // Retires the segment that is empty now, so that the next entry has its number.
        #expect(turn())
        Self.insert(5, store, size: 20_000)
        use(5..<6)
        #expect(turn() && store.statistics.evictions == 1)
    }

    @Test func `an entry that comes back soon after an eviction enters the main queue`() {
        let store = Self.store(512 << 10)
        var key = 0
        while store.statistics.evictions < 1000 {
            Self.insert(key, store)
            key += 1
        }
        let mainBytes = store.withLog(0) { $0.main.liveBytes }
        guard let gone = (0..<key).last(where: { !Self.find($0, store) }) else { return #expect(Bool(false), "nothing was evicted") }
        Self.insert(gone, store)
        #expect(store.withLog(0) { $0.main.liveBytes } == mainBytes + VolatileReference.header(gone, 1000).cost)
    }
}

extension VolatileLog {
    /// Returns the segments of a queue, oldest first.
    fileprivate func segments(_ isMain: Bool) -> [Segment] {
        var all: [Segment] = [], number = isMain ? main.oldest : small.oldest
        while number >= 0, let segment = segments[number] {
            all.append(segment)
            number = segment.newer
        }
        return all
    }
}
