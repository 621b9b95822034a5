import Plimsoll
import Synchronization

/// Caches under one budget, real ones, with one way to divide the budget. Load times are counted, not slept.
final class SharedCaches {
    enum Way { case proportional, byWorth }

    private final class Flag: Sendable {
        let value = Atomic<Bool>(false)
    }

    /// Time by the requests so far.
    private final class Clock: Sendable {
        let requests = Atomic<Int>(0)
    }

    private let members: [TimedCache<UInt64>]
    private let meter: ChargeMeter
    private let divider: Divider
    private let rung = Flag()
    private let clock = Clock()
    private let way: Way
    private let budget: Int
    /// Misses of each cache.
    private(set) var misses: [Int]
    private(set) var rounds = 0

    /// - Parameter rate: requests a second in all.
    init(_ mix: Mix, budget: Int, _ way: Way, rate: Double) {
        (self.way, self.budget) = (way, budget)
        members = mix.caches.map {
            TimedCache($0.name, loadTime: $0.loadMicroseconds * 1000) { _, value in Int(value) }
        }
        misses = members.map { _ in 0 }
        meter = ChargeMeter {}
        let registry = PurgeableRegistry(), volatile = ChargeMeter {}, rung = rung, clock = clock
        let time = Timekeeper { .seconds(Double(clock.requests.load(ordering: .relaxed)) / rate) }
        divider = Divider(registry: registry, meter: meter, time: time) {
            rung.value.store(true, ordering: .relaxed)
        }
        for member in members { registry.add(PurgeableRegistry.Entry(member, meter: meter, volatileMeter: volatile)) }
        meter.allow(ByteCount(budget), since: .zero)
        if way == .byWorth { round() }
    }

    private func round() {
        rung.value.store(false, ordering: .relaxed)
        rounds += 1
        divider.round { _, body in
            body()
            return true
        }
    }

    /// Requests a key, and inserts what is missing.
    func request(_ request: MixedRequests.Request) {
        let member = members[Int(request.cache)], key = request.id
        clock.requests.add(1, ordering: .relaxed)
        if member.cache.value(forKey: key) != nil { return }
        misses[Int(request.cache)] += 1
        // As a manager does near the line: each gives back in proportion to what it holds, then all may grow again.
        if way == .proportional, meter.heldBytes.bytes + Int(request.cost) > budget {
            let step = max(Int(request.cost), budget / 128), held = meter.heldBytes.bytes
            for member in members { _ = member.release(Int(Double(step) * Double(member.heldBytes) / Double(held))) }
        }
        member.cache.insert(UInt64(request.cost), forKey: key)
        if way == .byWorth, rung.value.load(ordering: .relaxed) { round() }
    }

    var held: [Int] { members.map(\.heldBytes) }
}
