import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// The order of extents, of leases and of drained members, and rates.
@Suite(.serialized, .timeLimit(.minutes(5))) struct QuiesceOrderTests {
    let clock = ManualClock()
    let set: QuiesceSet

    init() { set = QuiesceSet(time: clock.timekeeper) }

    @Test func `a brief pause allows the least, then a pause, the background, and each greater share`() {
        let rising: [QuiesceExtent] = [
            QuiesceExtent(profile: .paused, isHeld: true), .paused, .background, .least, .quarter, .half, .open,
        ]
        for (index, extent) in rising.enumerated() {
            #expect(rising.filter { $0 < extent } == Array(rising.prefix(index)), "\(extent)")
        }
        #expect(rising.filter(\.isPaused).count == 2 && rising.filter(\.isBackground) == [.background])
        #expect(rising.filter(\.isQuiet).count == 4)
    }

    @Test func `a revocation of credentials holds all work, with a lease or without`() {
        for (revocations, isHeld) in [(0, false), (1, true), (2, true)] {
            let inputs = QuiesceInputs(state: .active, revocations: revocations)
            for isLeased in [false, true] {
                let extent = inputs.extent(isLeased: isLeased)
                #expect(extent.isHeld == isHeld && extent.isPaused == isHeld, "\(revocations)")
            }
        }
        set.beginRevocation()
        set.beginRevocation()
        set.endRevocation()
        #expect(set.extent().isHeld)
        set.endRevocation()
        #expect(set.extent() == .open)
    }

    @Test func `leases are listed from the oldest on, and the class is admitted until the last has ended`() {
        let leases = ["c", "a", "b"].map { set.lease($0, admitting: "sync") }
        set.setState(.suspended)
        #expect(set.leases.map(\.name) == ["c", "a", "b"] && set.leases.map(\.workClass) == ["sync", "sync", "sync"])
        for (lease, left) in zip(leases, [["a", "b"], ["b"], []]) {
            #expect(set.extent(for: "sync") == .open && set.extent() == .paused)
            lease.cancel()
            #expect(set.leases.map(\.name) == left)
        }
        #expect(set.extent(for: "sync") == .paused)
    }

    @Test func `a drain names members in the order of addition, and waits only for paused ones`() async {
        let set = set, held = Latch(), begun = Counter()
        let limiters = ["third", "first", "second"].map { ConcurrencyLimiter($0, limit: 1) }
        for limiter in limiters { set.add(limiter) }
        let jobs = limiters.map { limiter in
            Task {
                try await limiter.run {
                    begun.add(1)
                    await held.wait()
                }
            }
        }
        await until("all jobs run") { begun.value == 3 }
        let unpaused = await set.drain(within: .seconds(5))
        #expect(unpaused.isEmpty && limiters.allSatisfy(\.isRunning))
        set.setState(.inactive)
        let drain = Task { await set.drain(within: .seconds(5)) }
        await until("the drain waits") { limiters.allSatisfy(\.isAwaited) }
        clock.advance(by: .seconds(5))
        let names = await drain.value
        #expect(names == ["third", "first", "second"])
        held.open()
        for job in jobs { _ = try? await job.value }
        let idle = await set.drain(within: .seconds(5))
        #expect(idle.isEmpty && !limiters.contains { $0.isRunning })
    }

    @Test func `a rate is never higher in the background than in the foreground`() {
        let slow = RateKnob("slow", full: 0.5, background: 10), fast = RateKnob("fast", full: 60, background: 10)
        let rows: [(extent: QuiesceExtent, slow: Double, fast: Double)] = [
            (.open, 0.5, 60), (.half, 0.25, 30), (.quarter, 0.125, 15), (.least, 0.5, 10), (.background, 0.5, 10),
            (.paused, 0, 0),
        ]
        for row in rows {
            slow.quiesce(to: row.extent)
            fast.quiesce(to: row.extent)
            #expect(slow.rate == row.slow && fast.rate == row.fast, "\(row.extent)")
            #expect(slow.interval == (row.slow > 0 ? .seconds(1 / row.slow) : nil), "\(row.extent)")
        }
    }
}
