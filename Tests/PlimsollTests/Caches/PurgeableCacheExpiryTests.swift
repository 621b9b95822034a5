import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// Entries that expire, and the timing wheel that finds them.
@Suite(.serialized, .timeLimit(.minutes(5))) struct PurgeableCacheExpiryTests {
    private let clock = ManualClock()

    private func cache(
        _ timeToLive: Duration? = nil, idle: Duration? = nil, limit: Int = 1_000_000, shards: Int = 1
    ) -> PurgeableCache<Int, String> {
        PurgeableCache(
            "expiring", limit: .bytes(limit), lifetime: CacheLifetime(timeToLive, idle, nil), shardCount: shards, time: clock.timekeeper,
            cost: { _, _ in 1 })
    }

    // MARK: Rules

    @Test func `a value lives for the set time from the insert on, at any use`() {
        let cache = cache(.seconds(10))
        cache.insert("v", forKey: 1)
        for _ in 0..<9 {
            clock.advance(by: .seconds(1))
            #expect(cache.value(forKey: 1) == "v")
        }
        clock.advance(by: .milliseconds(999))
        #expect(cache.value(forKey: 1) == "v")
        clock.advance(by: .milliseconds(1))
        #expect(cache.value(forKey: 1) == nil && cache.count == 0 && cache.byteCount == .zero && cache.statistics.expired == 1)
        cache.insert("w", forKey: 1)
        clock.advance(by: .seconds(9))
        cache.insert("x", forKey: 1)
        clock.advance(by: .seconds(9))
        #expect(cache.value(forKey: 1) == "x", "an insert begins its time anew")
    }

    @Test func `a value in use does not expire as idle`() {
        let cache = cache(idle: .seconds(10))
        for key in 1...3 { cache.insert("v", forKey: key) }
        for _ in 0..<20 {
            clock.advance(by: .seconds(9))
            #expect(cache.value(forKey: 1) == "v" && cache.values(forKeys: [2]) == [2: "v"])
        }
        clock.advance(by: .seconds(10))
        #expect(cache.value(forKey: 1) == nil && cache.value(forKey: 2) == nil && cache.value(forKey: 3) == nil)
        #expect(cache.statistics.expired == 3 && cache.statistics.misses == 3)
    }

    @Test func `a removal notice tells the time left, however the entry leaves`() {
        let cache = cache(.seconds(30), idle: .seconds(10), limit: 4), notices = Log<(key: Int, left: TimeLeft)>()
        cache.onRemovalNotice { key, _, notice in notices.add((key, notice.left)) }
        for key in 1...4 { cache.insert("v", forKey: key, timeToLive: key == 2 ? .seconds(60) : nil) }
        clock.advance(by: .seconds(4))
        let cached = TimeLeft(toLive: .seconds(26), toIdle: .seconds(6)), own = TimeLeft(toLive: .seconds(56), toIdle: .seconds(6))
        cache.insert("w", forKey: 5)
        cache.insert("w", forKey: 2)
        cache.removeValue(forKey: 3)
        _ = cache.release(.max)
        let lefts = Dictionary(notices.all.map { ($0.key, $0.left) }, uniquingKeysWith: { first, _ in first })
        #expect(lefts == [1: cached, 2: own, 3: cached, 4: cached, 5: TimeLeft(toLive: .seconds(30), toIdle: .seconds(10))])

        let lasting = PurgeableCache<Int, String>("lasting", cost: { _, _ in 1 })
        lasting.onRemovalNotice { key, _, notice in notices.add((key, notice.left)) }
        lasting.insert("v", forKey: 9)
        _ = lasting.release(.max)
        #expect(notices.all.last?.key == 9 && notices.all.last?.left == TimeLeft())
    }

    @Test func `time left ends at the earlier of two ends`() {
        let left = TimeLeft(toLive: .seconds(3), toIdle: .seconds(2))
        #expect(left.shortest == .seconds(2) && left.after(.seconds(1)) == TimeLeft(toLive: .seconds(2), toIdle: .seconds(1)))
        #expect(left.after(.seconds(2)) == nil && TimeLeft(toLive: .seconds(1), toIdle: .seconds(2)).after(.seconds(1)) == nil)
        #expect(TimeLeft(toIdle: .seconds(2)).shortest == .seconds(2) && TimeLeft(toLive: .seconds(2)).shortest == .seconds(2))
        #expect(TimeLeft().shortest == nil && TimeLeft().after(.seconds(1_000_000)) == TimeLeft())
    }

    @Test func `a load may set the time to live, and a load without one gets the cache's`() async throws {
        let cache = cache(.seconds(30))
        #expect(try await cache.value(forKey: 1, tags: [], orLoadLasting: { ("short", .seconds(5)) }) == "short")
        #expect(try await cache.value(forKey: 2, tags: [], orLoadLasting: { ("usual", nil) }) == "usual")
        #expect(try await cache.value(forKey: 1, tags: [], orLoadLasting: { ("not loaded", nil) }) == "short")
        clock.advance(by: .seconds(5))
        #expect(!cache.contains(1) && cache.contains(2))
        clock.advance(by: .seconds(25))
        #expect(!cache.contains(2))
    }

    @Test func `both bounds hold, and an entry's own bound goes before the cache's`() {
        let cache = cache(.seconds(30), idle: .seconds(10))
        cache.insert("used", forKey: 1)
        cache.insert("short", forKey: 2, timeToLive: .seconds(5))
        cache.insert("long", forKey: 3, timeToLive: .seconds(60))
        cache.insert("none", forKey: 4, timeToLive: .zero)
        cache.insert("past", forKey: 5, timeToLive: .seconds(-5))
        cache.insert("for ever", forKey: 6, timeToLive: .seconds(Int64.max / 2))
        #expect(cache.value(forKey: 4) == nil && cache.value(forKey: 5) == nil)
        for second in 1...70 {
            clock.advance(by: .seconds(1))
            #expect((cache.value(forKey: 1) != nil) == (second < 30), "\(second)")
            #expect((cache.value(forKey: 2) != nil) == (second < 5), "\(second)")
            #expect((cache.value(forKey: 3) != nil) == (second < 60), "\(second)")
            #expect(cache.value(forKey: 6) != nil)
        }
    }

    @Test func `an entry's own time needs no time of the cache`() {
        let cache = cache()
        for key in 0..<10 { cache.insert("for ever", forKey: key) }
        cache.insert("short", forKey: 1, timeToLive: .seconds(1))
        clock.advance(by: .seconds(100))
        #expect(cache.value(forKey: 1) == nil && (2..<10).allSatisfy { cache.value(forKey: $0) == "for ever" })
        cache.insert("for ever", forKey: 2, timeToLive: .seconds(1))
        cache.insert("for ever", forKey: 2)
        clock.advance(by: .seconds(100))
        #expect(cache.value(forKey: 2) == "for ever", "replaced by one that has no end")
    }

    @Test func `a reader of trivial values sees no expired value`() {
        let cache = PurgeableCache<Int, Int>(
            "trivial", lifetime: CacheLifetime(.seconds(1), nil, nil), shardCount: 4, time: clock.timekeeper, cost: { _, _ in 1 })
        for key in 0..<3000 { cache.insert(key, forKey: key) }
        clock.advance(by: .milliseconds(500))
        #expect((0..<3000).allSatisfy { cache.value(forKey: $0) == $0 })
        clock.advance(by: .milliseconds(500))
        #expect((0..<3000).allSatisfy { cache.value(forKey: $0) == nil } && cache.count == 0 && cache.byteCount == .zero)
        #expect(cache.statistics.expired == 3000 && cache.statistics.hits == 3000 && cache.statistics.misses == 3000)
    }

    // MARK: Leaving

    @Test func `expired entries leave as others come in, and listeners receive the reason`() {
        let cache = cache(), reasons = Log<String>()
        cache.onRemoval { key, _, reason in reasons.add("\(key) \(reason.rawValue)") }
        for key in 0..<20 { cache.insert("v", forKey: key, tags: ["t"], timeToLive: .seconds(key < 10 ? 3 : 1000)) }
        clock.advance(by: .seconds(5))
        cache.insert("other", forKey: 100)
        #expect(reasons.all.sorted() == (0..<10).map { "\($0) expired" })
        #expect(cache.count == 11 && cache.byteCount == 11 && cache.count(tag: "t") == 10)
        #expect(cache.statistics.expired == 10 && cache.statistics.evictions == 0)
    }

    @Test func `expired entries make room before any is evicted`() {
        let cache = cache(limit: 10), reasons = Log<RemovalReason>()
        for key in 0..<5 { cache.insert("short", forKey: key, timeToLive: .seconds(1)) }
        for key in 5..<10 { cache.insert("long", forKey: key, timeToLive: .seconds(100)) }
        cache.onRemoval { _, _, reason in reasons.add(reason) }
        clock.advance(by: .seconds(2))
        for key in 10..<15 { #expect(cache.insert("new", forKey: key)) }
        #expect(reasons.all == Array(repeating: .expired, count: 5) && (5..<15).allSatisfy { cache.value(forKey: $0) != nil })
        #expect(cache.byteCount == 10)
    }

    @Test func `inserts alone clear out all expired entries after any gap`() {
        for gap in [Duration.seconds(1), .seconds(8), .seconds(60), .seconds(600), .seconds(40_000), .seconds(4_000_000)] {
            let cache = cache(shards: 8)
            for key in 0..<4000 { cache.insert("v", forKey: key, timeToLive: gap * (Double(key % 10 + 1) / 10)) }
            clock.freeze(for: gap + .seconds(1))
            var inserts = 0
            while cache.count > inserts, inserts < 100_000 {
                cache.insert("later", forKey: 10_000 + inserts)
                inserts += 1
            }
            #expect(cache.statistics.expired == 4000, "\(gap)")
            // Each insert removes up to sixteen expired entries, or moves as many on.
            #expect(inserts < 10_000, "\(gap): \(inserts)")
        }
    }

    @Test func `times move with entries when a cache splits`() {
        let cache = cache(.seconds(100), idle: .seconds(10), shards: 64)
        for key in 0..<20_000 { cache.insert("v", forKey: key, timeToLive: key % 2 == 0 ? .seconds(5) : nil) }
        clock.advance(by: .seconds(5))
        #expect((0..<20_000).allSatisfy { (cache.value(forKey: $0) != nil) == ($0 % 2 == 1) })
        #expect(cache.count == 10_000 && cache.statistics.expired == 10_000)
    }

    // MARK: Against a plain model

    @Test func `an entry is present exactly as long as the set times, under random calls`() {
        struct Entry {
            var value: String
            var expires: Duration
            var idles: Duration
        }
        for seed in seeds(0..<40) {
            var random = SeededGenerator(seed: seed)
            let times: [Duration?] = [nil, .milliseconds(300), .seconds(7), .seconds(90)]
            let live = times[Int(seed % 4)], idle = times[Int(seed / 4 % 4)]
            let cache = cache(live, idle: idle, shards: seed % 3 == 0 ? 8 : 1), reasons = Log<RemovalReason>()
            cache.onRemoval { _, _, reason in reasons.add(reason) }
            var model: [Int: Entry] = [:], now = clock.timekeeper.elapsed(), removals: [RemovalReason: Int] = [:]
            for step in 0..<1500 {
                let key = Int.random(in: 0..<200, using: &random)
                let old = model[key].flatMap { min($0.expires, $0.idles) > now ? $0 : nil }
                switch Int.random(in: 0..<10, using: &random) {
                case 0..<4:
                    let own: Duration? = Bool.random(using: &random) ? .milliseconds(Int.random(in: 0...20_000, using: &random)) : nil
                    cache.insert("\(step)", forKey: key, timeToLive: own)
                    model[key] = Entry(
                        value: "\(step)", expires: (own ?? live).map { now + $0 } ?? .seconds(1_000_000_000),
                        idles: idle.map { now + $0 } ?? .seconds(1_000_000_000))
                case 4..<8:
                    #expect(cache.value(forKey: key) == old?.value, "seed \(seed), step \(step)")
                    if let idle, old != nil { model[key]?.idles = now + idle }
                    if old == nil { model[key] = nil }
                case 8:
                    let removed = cache.removeValue(forKey: key)
                    // An expired entry may still be present for the removal. An entry that has not expired must be
                    // present.
                    #expect(removed == nil ? old == nil : removed == model[key]?.value, "seed \(seed), step \(step)")
                    if removed != nil { removals[.removed, default: 0] += 1 }
                    model[key] = nil
                default:
                    let gap = Duration.milliseconds(Int.random(in: 1...[50, 2000, 30_000][step % 3], using: &random))
                    clock.freeze(for: gap)
                    now += gap
                }
            }
            let left = (0..<200).filter { cache.value(forKey: $0) != nil }
            #expect(left == model.filter { min($0.value.expires, $0.value.idles) > now }.keys.sorted(), "seed \(seed)")
            #expect(cache.count == left.count && cache.byteCount == left.count, "seed \(seed)")
            let received = reasons.all
            #expect(received.filter { $0 == .expired }.count == cache.statistics.expired && cache.statistics.expired > 0)
            #expect(received.filter { $0 == .removed }.count == removals[.removed, default: 0] && !received.contains(.evicted), "seed \(seed)")
        }
    }

    /// The wheel and its deadlines, without a cache.
    private struct Wheel {
        var wheel = ExpiryWheel()
        var times = SlotColumn<SlotTimes>(usual: SlotTimes())
        /// Slots in the wheel.
        var model: Set<UInt32> = []

        init(_ count: Int, at now: Int64) {
            wheel.use(at: now)
            times.use(1, filledWith: SlotTimes())
            for slot in 0..<UInt32(count) {
                times.reserve(slot)
                times.set(slot, SlotTimes())
            }
        }

        mutating func set(_ slot: UInt32, _ deadline: Int64) {
            wheel.remove(slot, &times)
            times.set(slot, SlotTimes(expires: deadline))
            wheel.add(slot, &times)
            if deadline == .max { model.remove(slot) } else { model.insert(slot) }
        }

        mutating func remove(_ slot: UInt32) {
            wheel.remove(slot, &times)
            model.remove(slot)
        }

        /// Puts the deadline off like a use: the wheel is not notified.
        mutating func putOff(_ slot: UInt32, _ deadline: Int64) {
            var own = times[slot]
            own.expires = deadline
            times.set(slot, own)
        }

        /// Removes and returns all slots that are due.
        mutating func takeDue(at now: Int64) -> [UInt32] {
            var due: [UInt32] = [], calls = 0
            // A call does a bounded amount of work, so that several calls may be needed to reach `now`.
            while calls < 5000 {
                calls += 1
                guard let slot = wheel.due(at: now, &times) else { continue }
                wheel.remove(slot, &times)
                model.remove(slot)
                due.append(slot)
            }
            return due
        }
    }

    @Test(arguments: [63, 64, 100, 64 * 63 + 63, 64 * 64 * 63 + 64 * 63 + 63, 1_000_003] as [Int64])
    func `one poll finds the due slot, across any number of empty buckets`(ticks: Int64) {
        let tick = Int64(1) << 27
        for start in [0, 1, 63, 4095, 123_456_789] as [Int64] {
            var wheel = Wheel(3, at: start * tick)
            wheel.set(1, (start + ticks) * tick)
            #expect(wheel.wheel.due(at: (start + ticks) * tick - 1, &wheel.times) == nil)
            #expect(wheel.wheel.due(at: (start + ticks + 1) * tick, &wheel.times) == 1, "from \(start)")
            // Repeats the test from the wheel's present position.
            wheel.set(2, (start + 2 * ticks) * tick)
            wheel.remove(1)
            #expect(wheel.wheel.due(at: (start + 3 * ticks + 2) * tick, &wheel.times) == 2, "from \(start)")
            wheel.times.free()
        }
    }

    @Test func `the wheel finds each slot after the set time, at most a tick late`() {
        let tick = Int64(1) << 27
        var found = 0
        for seed in seeds(0..<30) {
            var random = SeededGenerator(seed: seed)
            var now = Int64.random(in: 0...(1 << 50), using: &random)
            var wheel = Wheel(300, at: now)
            // Waits in the reach of each of the four rings, and beyond the last ring.
            let reaches: [Int64] = [tick, tick * 60, tick * 4000, tick * 250_000, tick * 16_000_000, tick * 100_000_000]
            for step in 0..<60 {
                for _ in 0..<10 {
                    let slot = UInt32.random(in: 0..<300, using: &random)
                    switch Int.random(in: 0..<6, using: &random) {
                    case 0: wheel.remove(slot)
                    case 1:
                        if wheel.model.contains(slot) {
                            wheel.putOff(slot, wheel.times[slot].expires + Int64.random(in: 0...(tick * 500), using: &random))
                        }
                    case 2 where step % 7 == 0: wheel.set(slot, .max)
                    default: wheel.set(slot, now + Int64.random(in: -tick...reaches.randomElement(using: &random)!, using: &random))
                    }
                }
                now += Int64.random(in: 0...reaches[Int.random(in: 0..<(step % 10 == 0 ? 6 : 3), using: &random)], using: &random)
                let before = wheel.model, due = wheel.takeDue(at: now)
                found += due.count
                #expect(due.allSatisfy { before.contains($0) && wheel.times[$0].expires <= now }, "seed \(seed), step \(step)")
                #expect(Set(due).count == due.count)
                let late = wheel.model.filter { wheel.times[$0].expires <= now - tick }
                #expect(late.isEmpty, "seed \(seed), step \(step): \(late.count) late")
            }
            wheel.times.free()
        }
        if !hasChosenSeed { #expect(found > 3000, "the property was never exercised") }
    }
}
