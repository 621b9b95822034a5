import PlimsollTesting
import Synchronization
import Testing

@testable import Plimsoll

/// Random operations on a cache and on a dictionary. The dictionary follows the cache's notifications, and must agree
/// with the cache after each operation.
///
/// Without a listener the dictionary only has the entries that may be present. The contents are then compared at the
/// end.
final class CacheModel<Key: Hashable & Sendable, Value: Sendable> {
    struct Held {
        var number: Int
        var cost: Int
        var tags: Set<String>
        var expires: Duration?
        var idles: Duration?
    }

    struct Removal: Sendable {
        var key: Key
        var number: Int
        var reason: RemovalReason
    }

    let cache: PurgeableCache<Key, Value>
    private let clock = ManualClock()
    private let key: (Int) -> Key
    private let value: (Int) -> Value
    private let number: @Sendable (Value) -> Int
    private let hasListener: Bool
    private let removals: Box
    private var random: SeededGenerator
    private let seed: UInt64
    private let keys: Int
    private let lifetime: (toLive: Duration?, toIdle: Duration?)
    private var held: [Key: Held] = [:]
    private var numbers = 0
    private var what = ""
    private(set) var isBroken = false

    /// A list that a listener adds to.
    final class Box: Sendable {
        let list = Mutex<[Removal]>([])
    }

    init(
        seed: UInt64, keys: Int, limit: Int?, shards: Int, hasListener: Bool, lifetime: (toLive: Duration?, toIdle: Duration?) = (nil, nil),
        key: @escaping (Int) -> Key, value: @escaping (Int) -> Value, number: @escaping @Sendable (Value) -> Int
    ) {
        (self.seed, self.keys, self.key, self.value, self.number, self.hasListener) = (seed, keys, key, value, number, hasListener)
        random = SeededGenerator(seed: seed)
        self.lifetime = lifetime
        cache = PurgeableCache(
            "model", limit: limit.map { .bytes($0) }, lifetime: CacheLifetime(lifetime.toLive, lifetime.toIdle, nil), shardCount: shards,
            time: clock.timekeeper, cost: { _, _ in 1 })
        let removals = Box()
        self.removals = removals
        guard hasListener else { return }
        cache.onRemoval { key, value, reason in
            let news = Removal(key: key, number: number(value), reason: reason)
            removals.list.withLock { $0.append(news) }
        }
    }

    private func number(_ range: ClosedRange<Int>) -> Int { Int.random(in: range, using: &random) }
    private var now: Duration { clock.timekeeper.elapsed() }
    private func isPast(_ held: Held) -> Bool { [held.expires, held.idles].contains { $0.map { $0 <= now } ?? false } }

    /// Notes a use of `key`.
    private func use(_ key: Key) { held[key]?.idles = lifetime.toIdle.map { now + $0 } }

    private func fail(_ why: String) {
        guard !isBroken else { return }
        isBroken = true
        Issue.record("seed \(seed), \(what): \(why)")
    }

    /// Performs one random operation.
    func step() {
        switch number(0...99) {
        case 0..<45: insert()
        case 45..<70: read()
        case 70..<80: remove()
        case 80..<84: release()
        case 84..<87: changeLimit()
        case 87..<90: purge()
        case 90..<92: evict()
        case 92..<98: clock.freeze(for: .milliseconds(number(0...800)))
        default:
            if number(0...40) == 0 {
                what = "removeAll"
                cache.removeAll()
                reconcile(allowing: [.removed])
                if cache.count != 0 { fail("\(cache.count) left") }
                if !hasListener { held = [:] }
            }
        }
        if cache.byteCount > cache.limit.bytes { fail("\(cache.byteCount) above \(cache.limit)") }
    }

    func insert(isChecked: Bool = true) {
        let key = key(number(0...keys)), cost = number(0...9) == 0 ? number(0...500) : number(0...20), isTagged = number(0...9) == 0
        let tags = isTagged ? (0..<number(1...3)).map { _ in "tag \(number(0...5))" } : []
        let timeToLive = number(0...19) == 0 ? Duration.milliseconds(number(0...5000)) : nil
        numbers += 1
        what = "insert \(numbers) under \(key), cost \(cost)"
        let isIn = cache.insert(value(numbers), forKey: key, cost: cost, tags: tags, timeToLive: timeToLive)
        reconcile(allowing: [.evicted, .expired, .replaced], replacing: key)
        if isIn != (cost <= cache.limit.bytes) { fail(isIn ? "admitted" : "refused") }
        guard isIn else { return }
        let expires = (timeToLive ?? lifetime.toLive).map { now + $0 }
        if hasListener, held[key] != nil { fail("what it replaced was not notified") }
        held[key] = Held(number: numbers, cost: cost, tags: Set(tags), expires: expires)
        use(key)
        if isChecked { agree() }
    }

    private func read() {
        let key = key(number(0...keys))
        what = "value of \(key)"
        let found: Int? = number(0...1) == 0 ? cache.value(forKey: key).map(number) : cache.withValue(forKey: key) { number(copy $0) }
        let expected = held[key].flatMap { isPast($0) ? nil : $0.number }
        if hasListener ? found != expected : found != nil && found != expected { fail("\(found ?? -1) instead of \(expected ?? -1)") }
        if found != nil { use(key) }
        reconcile(allowing: [.expired])
        agree()
    }

    private func remove() {
        let key = key(number(0...keys))
        what = "remove \(key)"
        let expected = held[key].flatMap { isPast($0) ? nil : $0.number }
        let found = cache.removeValue(forKey: key).map(number)
        if hasListener ? found != expected : found != nil && found != expected { fail("\(found ?? -1) instead of \(expected ?? -1)") }
        reconcile(allowing: [expected == nil ? .expired : .removed])
        if !hasListener { held[key] = nil }
        agree()
    }

    private func release() {
        let target = number(0...400), before = cache.byteCount
        what = "release \(target)"
        let released = cache.release(target)
        if released < min(target, before) || before - released != cache.byteCount { fail("released \(released) of \(before)") }
        reconcile(allowing: [.purged])
        agree()
    }

    private func evict() {
        let wanted = number(0...30), before = cache.count
        what = "evict \(wanted)"
        if cache.evict(count: wanted) != min(wanted, before) { fail("others evicted") }
        reconcile(allowing: [.evicted])
        agree()
    }

    private func changeLimit() {
        let limit = number(0...5) == 0 ? number(0...300) : number(2000...20_000)
        what = "limit \(limit)"
        cache.limit = .bytes(limit)
        reconcile(allowing: [.evicted])
        agree()
    }

    private func purge() {
        let tag = "tag \(number(0...5))", tagged = held.filter { $0.value.tags.contains(tag) }.map(\.key)
        what = "purge \(tag)"
        if hasListener, cache.count(tag: tag) != tagged.count { fail("\(cache.count(tag: tag)) have it, not \(tagged.count)") }
        let purged = cache.purge(tag: tag)
        if purged > tagged.count || hasListener && purged != tagged.count { fail("\(purged) purged, not \(tagged.count)") }
        reconcile(allowing: [.purged])
        if !hasListener {
            for key in tagged { held[key] = nil }
        } else if tagged.contains(where: { held[$0] != nil }) {
            fail("some were not notified")
        }
        agree()
    }

    /// Removes from the dictionary the entries that the listener was notified of.
    private func reconcile(allowing reasons: Set<RemovalReason>, replacing new: Key? = nil) {
        let list = removals.list.withLock { list in
            defer { list = [] }
            return list
        }
        for removal in list {
            guard let was = held.removeValue(forKey: removal.key) else { return fail("\(removal.key) notified twice, or never there") }
            if was.number != removal.number { fail("\(removal.key) was \(was.number), not \(removal.number)") }
            if !reasons.contains(removal.reason) { fail("\(removal.key) \(removal.reason)") }
            if removal.reason == .expired, !isPast(was) { fail("\(removal.key) expired too early") }
            if removal.reason == .replaced, removal.key != new { fail("\(removal.key) replaced by another") }
        }
    }

    private func agree() {
        guard hasListener else { return }
        if cache.count != held.count { fail("\(cache.count) entries, not \(held.count)") }
        let cost = held.values.reduce(0) { $0 + $1.cost }
        if cache.byteCount != cost { fail("costs \(cache.byteCount), not \(cost)") }
    }

    /// Compares all contents.
    func compare() {
        what = "in the end"
        let before = (cache.count, cache.byteCount)
        var cost = 0, count = 0
        for key in (0...keys).map(key) {
            let found = cache.value(forKey: key).map(number)
            if let found {
                count += 1
                use(key)
                cost += held[key]?.cost ?? 0
                if found != held[key]?.number { fail("\(found) under \(key)") }
            } else if hasListener, let held = held[key], !isPast(held) {
                fail("\(key) is missing")
            }
        }
        reconcile(allowing: [.expired])
        agree()
        if count != cache.count || cost != cache.byteCount { fail("\(count) found, cost \(cost), of \(before)") }
    }
}
