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

    private let members: [any TimedMember]
    private let meter: ChargeMeter
    private let divider: Divider
    private let rung = Flag()
    private let clock = Clock()
    private let way: Way
    private let budget: Int
    /// Misses of each cache.
    private(set) var misses: [Int]
    private(set) var rounds = 0

    /// - Parameters:
    ///   - rate: requests a second in all.
    ///   - isVolatile: true for caches in volatile memory.
    init(_ mix: Mix, budget: Int, _ way: Way, rate: Double, isVolatile: Bool = false) {
        (self.way, self.budget) = (way, budget)
        members = mix.caches.map {
            let loadTime = $0.loadMicroseconds * 1000
            return isVolatile
                ? TimedVolatileCache($0.name, loadTime: loadTime)
                : TimedCache<UInt64>($0.name, loadTime: loadTime) { _, value in Int(value) }
        }
        misses = members.map { _ in 0 }
        meter = ChargeMeter {}
        let registry = PurgeableRegistry(), other = ChargeMeter {}, rung = rung, clock = clock
        let time = Timekeeper { .seconds(Double(clock.requests.load(ordering: .relaxed)) / rate) }
        divider = Divider(
            of: isVolatile ? .volatile : .heap, registry: registry, meter: meter, time: time
        ) {
            rung.value.store(true, ordering: .relaxed)
        }
        for member in members {
            registry.add(
                PurgeableRegistry.Entry(
                    member, meter: isVolatile ? other : meter, volatileMeter: isVolatile ? meter : other))
        }
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
        if member.has(key) { return }
        misses[Int(request.cache)] += 1
        // As a manager does near the line: each cache releases in proportion to the held bytes, then all may grow
        // again.
        if way == .proportional, meter.heldBytes.bytes + Int(request.cost) > budget {
            let step = max(Int(request.cost), budget / 128), held = meter.heldBytes.bytes
            for member in members { _ = member.release(Int(Double(step) * Double(member.heldBytes) / Double(held))) }
        }
        member.keep(key, bytes: Int(request.cost))
        if way == .byWorth, rung.value.load(ordering: .relaxed) { round() }
    }

    var held: [Int] { members.map(\.heldBytes) }
}
