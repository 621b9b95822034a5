import Plimsoll
import PlimsollLifecycle
import Synchronization
import TestSupport
import Testing

@testable import PlimsollService

/// Requests that wait for a short time while memory is short.
struct ShedWaitingTests {
    /// A clock that a test moves.
    private final class WaitClock: Sendable {
        let now = Mutex(Duration.zero)
        private let sleepers = Mutex<[CheckedContinuation<Void, Never>]>([])

        func rest() async {
            // Cancelled or not, the sleeper rests until `passPatience`: a late end of the sleep must do no harm.
            await withCheckedContinuation { continuation in sleepers.withLock { $0.append(continuation) } }
        }
        var count: Int { sleepers.withLock { $0.count } }
        func passPatience() {
            for sleeper in sleepers.withLock({ sleepers in
                defer { sleepers = [] }
                return sleepers
            }) { sleeper.resume() }
        }
    }

    private final class Order: Sendable {
        let names = Mutex<[String]>([])
        let count = Atomic(0)
    }

    private let clock = WaitClock()

    private func shedder(_ change: (inout SheddingPolicy) -> Void = { _ in }) -> RequestShedder {
        var policy = SheddingPolicy(limit: 8, seed: 7)
        change(&policy)
        return RequestShedder("test", policy: policy, elapsed: { [clock] in clock.now.withLock { $0 } }, rest: { [clock] _ in await clock.rest() })
    }

    private func waiters(_ shedder: RequestShedder, _ count: Int) async {
        await until("\(count) wait") { shedder.queue.queued == count && clock.count >= count }
    }

    @Test func `a request without room in memory is admitted as soon as the shortage is over`() async {
        let shedder = shedder()
        shedder.quiesce(to: .narrowed(to: .quarter))
        async let refusal = shedder.admit(.sheddable)
        await waiters(shedder, 1)
        #expect(shedder.statistics.waiting == 1 && shedder.statistics.running == 0)
        shedder.quiesce(to: .narrowed(to: .half))
        #expect(await refusal == nil)
        #expect(shedder.statistics.running == 1 && shedder.counts.admitted["sheddable"] == 1 && shedder.waiting == 0)
        shedder.end()
        clock.passPatience()
        #expect(shedder.statistics.running == 0 && shedder.statistics.refused == 0)
    }

    @Test func `a waiting request is admitted after another ends, by importance, then by arrival`() async {
        let shedder = shedder { $0[.normal, .least] = .init(concurrency: 0.125) }
        #expect(shedder.begin(.normal) == nil && shedder.begin(.normal) == nil)
        shedder.quiesce(to: .narrowed(to: .least))
        let order = Order()
        await withTaskGroup { group in
            for (number, (name, priority)) in [("first", RequestPriority.normal), ("second", .normal)].enumerated() {
                group.addTask {
                    if await shedder.admit(priority) == nil { order.names.withLock { $0.append(name) } }
                    shedder.end()
                }
                await waiters(shedder, number + 1)
            }
            for _ in 0..<2 { #expect(shedder.begin(.critical) == nil) }
            group.addTask {
                if await shedder.admit(.critical) == nil { order.names.withLock { $0.append("critical") } }
                shedder.end()
            }
            await waiters(shedder, 3)
            for _ in 0..<4 { shedder.end() }
        }
        #expect(order.names.withLock { $0 } == ["critical", "first", "second"])
        #expect(shedder.statistics.running == 0 && shedder.waiting == 0)
        clock.passPatience()
    }

    @Test func `room that becomes free between two attempts is not for the later request`() async {
        let queue = RequestQueue(capacity: 2) { [clock] _ in await clock.rest() }
        let room = Counter(), endings = Counter(), attempts = Counter(), order = Log<String>()
        // The queue makes one attempt at a time. With `endings`, a request ends right after an attempt in vain.
        let reserve: @Sendable () -> Bool = {
            defer { attempts.add(1) }
            if room.value > 0 {
                room.add(-1)
                return true
            }
            room.add(endings.value)
            endings.add(-endings.value)
            return false
        }
        await withTaskGroup(of: Void.self) { group in
            for (number, name) in ["first", "second"].enumerated() {
                group.addTask { if await queue.wait(.normal, atMost: .seconds(1), reserve) { order.add(name) } }
                await until("\(name) waits") { attempts.value > number }
            }
            endings.add(1)
            queue.admitNext()
            #expect(queue.queued == 2)
            queue.admitNext()
            await until("the first is admitted") { order.all.count == 1 }
            room.add(1)
            queue.admitNext()
        }
        #expect(order.all == ["first", "second"] && queue.count == 0)
        clock.passPatience()
    }

    @Test func `a request refused by its share of arrivals does not wait`() async {
        let shedder = shedder()
        shedder.quiesce(to: .narrowed(to: .quarter))
        var refused = 0
        for _ in 0..<100 { if await shedder.admit(.normal) == nil { shedder.end() } else { refused += 1 } }
        #expect((48...52).contains(refused) && shedder.waiting == 0)
    }

    @Test func `a request that waits beyond the patience is refused, and counted once`() async {
        let shedder = shedder()
        shedder.quiesce(to: .narrowed(to: .least))
        async let refusal = shedder.admit(.sheddable)
        await waiters(shedder, 1)
        clock.passPatience()
        #expect(await refusal?.reason == .arrivals)
        #expect(shedder.waiting == 0 && shedder.statistics.refused == 1 && shedder.statistics.running == 0)
        shedder.quiesce(to: .open)
        #expect(shedder.statistics.running == 0)
    }

    @Test func `a request cancelled during the wait is refused`() async {
        let shedder = shedder()
        shedder.quiesce(to: .narrowed(to: .least))
        let task = Task { await shedder.admit(.sheddable) }
        await waiters(shedder, 1)
        task.cancel()
        #expect(await task.value != nil && shedder.waiting == 0)
        // A request cancelled before the wait.
        let late = Task {
            try? await untilCancelled()
            return await shedder.admit(.sheddable)
        }
        late.cancel()
        #expect(await late.value != nil && shedder.waiting == 0 && shedder.statistics.running == 0)
        clock.passPatience()
    }

    @Test func `the queue is bounded, zero patience makes no request wait, and exempt requests are served at once`() async {
        let narrow = shedder { $0.mostWaiting = 1 }
        narrow.quiesce(to: .narrowed(to: .least))
        async let first = narrow.admit(.sheddable)
        await waiters(narrow, 1)
        #expect(await narrow.admit(.sheddable) != nil)
        #expect(await narrow.admit(.sheddable, isExempt: { true }) == nil)
        narrow.quiesce(to: .open)
        #expect(await first == nil && narrow.statistics.running == 2)

        let hasty = shedder { $0.patience = .zero }
        hasty.quiesce(to: .narrowed(to: .least))
        #expect(await hasty.admit(.sheddable)?.reason == .arrivals)
        // A limit of the shedder is no shortage, and a held process accepts no work: both refuse at once.
        let full = shedder { $0.limit = 1 }
        #expect(full.begin(.normal) == nil)
        #expect(await full.admit(.normal)?.reason == .concurrency)
        full.quiesce(to: QuiesceExtent(profile: .paused, isHeld: true))
        #expect(await full.admit(.critical)?.reason == .paused)
        clock.passPatience()
    }

    @Test func `the retry time follows the length of shortages`() {
        let shedder = shedder()
        func refused(after seconds: Double) -> Int {
            clock.now.withLock { $0 += .seconds(100) }
            shedder.quiesce(to: .narrowed(to: .least))
            clock.now.withLock { $0 += .seconds(seconds) }
            let seen = (0..<50).compactMap { _ in shedder.begin(.sheddable)?.retryAfterSeconds }
            shedder.quiesce(to: .open)
            return seen.max() ?? 0
        }
        for _ in 0..<20 { _ = refused(after: 0.3) }
        #expect(refused(after: 0.3) <= 2)
        #expect((20...40).contains(refused(after: 10)))
        #expect(refused(after: 1000) <= 60)
    }

    @Test func `storms of waiting requests lose no request and admit none twice`() async {
        for seed in seeds(0..<5) {
            let shedder = shedder { $0.limit = 4 }, admitted = Order()
            await withTaskGroup { group in
                for task in 0..<50 {
                    group.addTask {
                        for step in 0..<20 {
                            if task == 0 { shedder.quiesce(to: .narrowed(to: QuiesceExtent.Share.allCases[(step + Int(seed)) % 4])) }
                            guard await shedder.admit(task % 3 == 0 ? .critical : .normal) == nil else { continue }
                            // Relaxed: counted here, and read once all tasks have ended.
                            admitted.count.add(1, ordering: .relaxed)
                            await giveWay()
                            shedder.end()
                        }
                        if task == 0 { shedder.quiesce(to: .narrowed(to: .half)) }
                    }
                }
            }
            #expect(shedder.statistics.running == 0 && shedder.waiting == 0, "seed \(seed)")
            #expect(shedder.statistics.admitted == UInt64(admitted.count.load(ordering: .relaxed)), "seed \(seed)")
            clock.passPatience()
        }
    }
}
