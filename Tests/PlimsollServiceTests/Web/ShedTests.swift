import Plimsoll
import PlimsollLifecycle
import PlimsollService
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

/// The decisions of a shedder, without a framework, a clock or a manager.
struct ShedTests {
    private func shedder(limit: Int? = nil, seed: UInt64 = 7) -> RequestShedder { RequestShedder(policy: SheddingPolicy(limit: limit, seed: seed)) }

    /// Returns the number of admitted requests among `count` requests that end at once.
    private func admitted(_ count: Int, _ priority: RequestPriority, by shedder: RequestShedder) -> Int {
        (0..<count).reduce(0) { admitted, _ in
            guard shedder.begin(priority) == nil else { return admitted }
            shedder.end()
            return admitted + 1
        }
    }

    @Test func `plentiful memory admits and counts all requests`() {
        let shedder = shedder()
        for priority in RequestPriority.allCases { #expect(admitted(1000, priority, by: shedder) == 1000) }
        #expect(shedder.counts.admitted == ["sheddable": 1000, "normal": 1000, "critical": 1000])
        #expect(shedder.statistics.admitted == 3000 && shedder.statistics.refused == 0 && shedder.statistics.running == 0)
        #expect(shedder.statistics.limit == .max)
    }

    @Test(arguments: [
        (QuiesceExtent.Share.whole, [1000, 1000, 1000]), (.half, [500, 1000, 1000]), (.quarter, [0, 500, 1000]), (.least, [0, 250, 1000]),
    ])
    func `each share of memory leaves each priority a share of arrivals`(share: QuiesceExtent.Share, expected: [Int]) {
        var policy = SheddingPolicy(seed: 7)
        policy[.sheddable, .half] = .init(arrivals: 0.5)
        (policy[.normal, .quarter], policy[.normal, .least]) = (.init(arrivals: 0.5), .init(arrivals: 0.25))
        let shedder = RequestShedder(policy: policy)
        shedder.quiesce(to: .narrowed(to: share))
        for (priority, expected) in zip(RequestPriority.allCases, expected) {
            #expect(abs(admitted(1000, priority, by: shedder) - expected) <= 2, "\(priority) at \(share)")
        }
    }

    @Test func `shares of arrivals hold over any stretch and any pattern of arrivals`() {
        var stretches = 0
        for seed in seeds(0..<200) {
            var policy = SheddingPolicy(seed: seed), random = SeededGenerator(seed: seed)
            let share = Double.random(in: 0.05...0.95, using: &random)
            policy[.normal, .half] = .init(arrivals: share)
            let shedder = RequestShedder(policy: policy)
            shedder.quiesce(to: .narrowed(to: .half))
            // Two kinds of request that alternate: refusals do not depend on the kind.
            var kinds = [0.0, 0.0], recent: [Bool] = [], worst = 0.0
            for number in 0..<2000 {
                let isAdmitted = admitted(1, .normal, by: shedder) == 1
                if isAdmitted { kinds[number % 2] += 1 }
                recent.append(isAdmitted)
                if recent.count > 100 { recent.removeFirst() }
                guard recent.count == 100 else { continue }
                stretches += 1
                worst = max(worst, abs(Double(recent.count { $0 }) - 100 * share))
            }
            #expect(worst <= 4, "seed \(seed), share \(share)")
            #expect(abs(kinds[0] - kinds[1]) <= 12, "seed \(seed), share \(share)")
        }
        if !hasChosenSeed { #expect(stretches > 100_000, "the property was never exercised") }
    }

    @Test func `shedders with one seed decide alike, and with another seed differently`() {
        func decisions(_ seed: UInt64) -> [Int?] {
            var policy = SheddingPolicy(seed: seed)
            policy[.normal, .quarter] = .init(arrivals: 0.5, concurrency: 0.25)
            policy[retryAfter: .quarter] = 5...20
            let shedder = RequestShedder(policy: policy)
            shedder.quiesce(to: .narrowed(to: .quarter))
            return (0..<200).map { _ in
                defer { if shedder.statistics.running > 0 { shedder.end() } }
                return shedder.begin(.normal)?.retryAfterSeconds
            }
        }
        #expect(decisions(1) == decisions(1))
        #expect(decisions(1) != decisions(2))
    }

    @Test(arguments: QuiesceExtent.Share.allCases)
    func `refused clients get retry times over the whole range, evenly spread`(share: QuiesceExtent.Share) {
        var policy = SheddingPolicy(limit: 1, seed: 7)
        let range = 2...8
        policy[retryAfter: .narrowed(to: share)] = range
        let shedder = RequestShedder(policy: policy)
        shedder.quiesce(to: .narrowed(to: share))
        #expect(shedder.begin(.critical) == nil)
        var seen: [Int: Int] = [:]
        for _ in 0..<600 { seen[shedder.begin(.critical)?.retryAfterSeconds ?? -1, default: 0] += 1 }
        #expect(Set(seen.keys) == Set(range))
        #expect(seen.values.allSatisfy { abs($0 - 600 / range.count) <= 3 }, "\(seen)")
    }

    @Test func `concurrency is a share of the limit, and never more requests run`() {
        let shedder = shedder(limit: 100)
        func running(_ priority: RequestPriority) -> Int {
            var count = 0, tries = 0
            while tries < 500 {
                tries += 1
                if shedder.begin(priority) == nil { count += 1 }
            }
            for _ in 0..<count { shedder.end() }
            return count
        }
        #expect(running(.normal) == 100)
        shedder.quiesce(to: .narrowed(to: .half))
        #expect([running(.critical), running(.normal), running(.sheddable)] == [100, 50, 25])
        #expect(shedder.statistics.limit == 50)
        shedder.quiesce(to: .narrowed(to: .quarter))
        #expect([running(.critical), running(.normal), running(.sheddable)] == [100, 25, 0])
        shedder.quiesce(to: .narrowed(to: .least))
        #expect([running(.critical), running(.normal), running(.sheddable)] == [50, 12, 0])
    }

    @Test func `without a limit, shares refer to the concurrency before the shortage`() {
        let shedder = shedder()
        for _ in 0..<40 { #expect(shedder.begin(.normal) == nil) }
        for _ in 0..<40 { shedder.end() }
        shedder.quiesce(to: .narrowed(to: .half))
        #expect(shedder.statistics.limit == 20)
        for _ in 0..<20 { #expect(shedder.begin(.normal) == nil) }
        #expect(shedder.begin(.normal)?.reason == .concurrency)
        #expect(shedder.begin(.critical) == nil)
        shedder.quiesce(to: .open)
        #expect(shedder.statistics.limit == .max && shedder.begin(.sheddable) == nil)
        // The usual concurrency is counted anew, from the running requests.
        shedder.quiesce(to: .narrowed(to: .half))
        #expect(shedder.statistics.limit == 11)
    }

    @Test func `a paused process admits exempt requests alone`() {
        let shedder = shedder()
        shedder.quiesce(to: QuiesceExtent(profile: .paused, isHeld: true))
        for priority in RequestPriority.allCases { #expect(shedder.begin(priority)?.reason == .paused) }
        #expect(shedder.begin(.normal, isExempt: { true }) == nil)
        #expect(shedder.statistics.running == 1 && shedder.counts.exempted == 1 && shedder.counts.admitted["normal"] == 1)
        shedder.end()
        #expect(shedder.counts.refused["normal"] == ["paused": 1, "arrivals": 0, "concurrency": 0])
        #expect(shedder.statistics.limit == 0 && shedder.statistics.running == 0)
    }

    @Test func `an exemption is looked up only before a refusal`() {
        let shedder = shedder()
        #expect(
            shedder.begin(
                .normal,
                isExempt: {
                    Issue.record("asked without need"); return true
                }) == nil)
    }

    @Test func `run throws the refusal, and ends each admitted request`() async throws {
        let shedder = shedder(limit: 1)
        let inner = try await shedder.run(.normal) {
            await #expect(throws: RequestRefusal.self) { try await shedder.run(.normal) { Issue.record("admitted beyond the limit") } }
            return shedder.statistics.running
        }
        #expect(inner == 1 && shedder.statistics.running == 0)
        await #expect(throws: CancellationError.self) { try await shedder.run(.normal) { throw CancellationError() } }
        #expect(shedder.statistics.running == 0)
    }

    private final class Seen: Sendable {
        let most = Atomic<Int>(0)
        let admitted = Atomic<Int>(0)
    }

    @Test func `storms never admit more at once than the limit and lose no count`() async {
        for seed in seeds(0..<5) {
            let shedder = shedder(limit: 20, seed: seed), seen = Seen()
            await withTaskGroup { group in
                for task in 0..<4 {
                    group.addTask {
                        var random = SeededGenerator(seed: seed * 4 + UInt64(task)), mine = 0
                        for step in 0..<5000 {
                            if task == 0, step % 500 == 0 { shedder.quiesce(to: .narrowed(to: .allCases.randomElement(using: &random) ?? .whole)) }
                            if Bool.random(using: &random), mine > 0 {
                                mine -= 1
                                shedder.end()
                            } else if shedder.begin(.allCases.randomElement(using: &random) ?? .normal) == nil {
                                mine += 1
                                // Relaxed: counted here, and read once all tasks have ended.
                                seen.admitted.add(1, ordering: .relaxed)
                                seen.most.max(shedder.statistics.running, ordering: .relaxed)
                            }
                        }
                        for _ in 0..<mine { shedder.end() }
                    }
                }
            }
            // Each other caller may be in the middle of a refusal, and counts for that moment.
            #expect(seen.most.load(ordering: .relaxed) <= 23, "seed \(seed)")
            #expect(shedder.statistics.running == 0 && shedder.statistics.admitted == UInt64(seen.admitted.load(ordering: .relaxed)), "seed \(seed)")
            #expect(shedder.statistics.refused > 0, "the limit was never met")
        }
    }

    @Test func `an invalid policy is refused with the allowed values`() {
        var policy = SheddingPolicy(limit: 0)
        #expect(policy.problem == "limit is 0, allowed is 1 and more, or nil for no limit")
        policy.limit = nil
        #expect(policy.problem == nil)
        policy[.normal, .half] = .init(arrivals: .nan)
        #expect(policy.problem?.contains("normal at half admits nan of arrivals") == true)
        policy[.normal, .half] = .all
        policy[retryAfter: .half] = -1...3
        #expect(policy.problem?.contains("allowed is 0...86400") == true)
    }

    @Test func `a refusal's text asks the client to retry later`() throws {
        let shedder = shedder()
        shedder.quiesce(to: .narrowed(to: .quarter))
        let refusal = try #require(shedder.begin(.sheddable))
        #expect(
            "\(refusal)"
                == "not served: memory is short, and only a share of sheddable requests is served; retry in \(refusal.retryAfterSeconds) s")
    }
}
