import CAllocationCounter
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// The rung that cancels the request that holds the most memory.
@Suite(.serialized, .timeLimit(.minutes(5))) struct RequestCancellingTests {
    /// Requests that run until they are cancelled, unless they are told to go on.
    final class Requests: Sendable {
        let registry = BudgetRegistry()
        private let tasks = Mutex<[String: (budget: MemoryBudget, task: Task<Void, any Error>)]>([:])
        private let stubborn = Mutex<Set<String>>([])

        func add(_ name: String, _ bytes: ByteCount, isStubborn: Bool = false) async {
            let budget = MemoryBudget(name: name, registry: registry), begun = Counter()
            budget.charge(bytes)
            if isStubborn { stubborn.withLock { _ = $0.insert(name) } }
            let task = Task {
                defer { budget.end() }
                try await budget.run {
                    begun.add(1)
                    await until("the end of \(name)") { Task.isCancelled && !self.stubborn.withLock { $0.contains(name) } }
                    try Task.checkCancellation()
                }
            }
            tasks.withLock { $0[name] = (budget, task) }
            await until { begun.value == 1 && budget.canBeCancelled }
        }

        /// Waits for the end of a request, and returns the error.
        func end(of name: String) async -> MemoryBudgetExceeded? {
            stubborn.withLock { _ = $0.remove(name) }
            do { try await tasks.withLock { $0[name] }?.task.value } catch { return error as? MemoryBudgetExceeded }
            return nil
        }

        func cancelAll() { for (_, task) in tasks.withLock({ $0.values }) { task.cancel() } }
        var marked: [String] { tasks.withLock { $0.filter { $0.value.budget.excess != nil }.map(\.key) }.sorted() }
    }

    private static func policy(above least: ByteCount) -> PressurePolicy {
        var policy = PressurePolicy.standard
        policy.ladder = EscalationLadder.none.cancellingLargestRequest(above: least)
        return policy
    }

    @Test func `at the critical level the largest request is cancelled, and the next one after a reading that follows the end`() async throws {
        let requests = Requests()
        try await RunningManager.run(policy: Self.policy(above: .mebibytes(20)), requests: requests.registry) { running in
            for (name, size) in [("GET /", 1), ("POST /import", 150), ("POST /report", 80), ("GET /small", 20)] {
                await requests.add(name, .mebibytes(size))
            }
            await running.available(.mebibytes(150))
            #expect(running.manager.level == .warning && requests.marked.isEmpty, "not at warning")
            await running.available(.mebibytes(40), after: .seconds(1))
            let excess = await requests.end(of: "POST /import")
            #expect(excess?.isForPressure == true && excess?.held == .mebibytes(150) && excess?.limit == nil)
            for step in 0..<3 { await running.available(.mebibytes(41 + step), after: .milliseconds(10)) }
            #expect(await requests.end(of: "POST /report")?.isForPressure == true)
            for step in 0..<4 { await running.available(.mebibytes(43 + step), after: .milliseconds(600)) }
            #expect(requests.marked == ["POST /import", "POST /report"], "no other one holds more than 20 MiB")
            let reports = running.manager.reports.filter { $0.cancelledRequest != nil }
            #expect(reports.map(\.cancelledRequest) == ["POST /import", "POST /report"])
            #expect(reports.map(\.cancelledBytes) == [.mebibytes(150), .mebibytes(80)] && reports.allSatisfy { $0.level == .critical })
            #expect(reports[0].description.contains("cancel largest request (above 20 MiB), POST /import held 150 MiB"))
            let status = try #require(running.manager.status.requests)
            #expect(status.running == 2 && status.cancelledForPressure == 2 && status.cancelledOverLimit == 0)
            #expect(status.largest.map(\.name) == ["GET /small", "GET /"] && status.heldBytes == 21 << 20)
            requests.cancelAll()
        }
    }

    @Test func `a turn that finds the cancelled request ended only waits, as the reading may precede the end`() {
        let registry = BudgetRegistry(), first = MemoryBudget(name: "first", registry: registry)
        var cancelling = RequestCancelling()
        func isDue(_ milliseconds: Int...) -> [Bool] { milliseconds.map { cancelling.isDue(at: .milliseconds($0)) } }
        #expect(isDue(0) == [true])
        cancelling.began(first, at: .zero)
        #expect(isDue(10) == [false])
        first.end()
        #expect(isDue(20, 20) == [false, true])
        let second = MemoryBudget(name: "second", registry: registry)
        cancelling.began(second, at: .seconds(1))
        #expect(isDue(1999, 2000, 2000) == [false, false, true], "the second still runs")
        second.end()
    }

    @Test func `a cancelled request that continues protects other requests for a second only`() async throws {
        let requests = Requests()
        try await RunningManager.run(policy: Self.policy(above: .mebibytes(20)), requests: requests.registry) { running in
            await requests.add("stubborn", .mebibytes(150), isStubborn: true)
            await requests.add("other", .mebibytes(80))
            await running.available(.mebibytes(40))
            #expect(requests.marked == ["stubborn"])
            await running.available(.mebibytes(41), after: .milliseconds(900))
            #expect(requests.marked == ["stubborn"])
            await running.available(.mebibytes(42), after: .milliseconds(200))
            await running.available(.mebibytes(43), after: .milliseconds(10))
            #expect(await requests.end(of: "other") != nil && requests.marked == ["other", "stubborn"])
            #expect(await requests.end(of: "stubborn") != nil)
        }
    }

    @Test func `a dry run reports the request and cancels nothing`() async throws {
        let requests = Requests()
        var policy = Self.policy(above: .mebibytes(20))
        policy.isDryRun = true
        try await RunningManager.run(policy: policy, requests: requests.registry) { running in
            await requests.add("POST /import", .mebibytes(150))
            await running.available(.mebibytes(40))
            let report = try #require(running.manager.reports.first { $0.cancelledRequest != nil })
            #expect(report.cancelledRequest == "POST /import" && report.outcome == .dryRun && requests.marked.isEmpty)
            requests.cancelAll()
        }
    }

    @Test func `without a memory count the rung is refused once an episode, with the remedy`() async throws {
        let requests = Requests()
        try await RunningManager.run(policy: Self.policy(above: .mebibytes(20)), requests: requests.registry) { running in
            for step in 0..<3 { await running.available(.mebibytes(40 + step), after: .milliseconds(10)) }
            #expect(running.manager.reports.compactMap(\.refusal) == ["the memory of requests is not counted (Jemalloc.meterRequests)"])
            for _ in 0..<4 { await running.available(.mebibytes(900), after: .seconds(10)) }
            #expect(running.manager.level == .normal)
            await running.available(.mebibytes(40), after: .seconds(1))
            #expect(running.manager.reports.compactMap(\.refusal).count == 2)
        }
    }

    @Test(.needs(allocation_count_works(), "a sanitizer is in front of malloc"))
    func `T27 the choice of the largest request and the order to end it allocate nothing`() async throws {
        let requests = Requests()
        for number in 0..<40 { await requests.add("\(number)", .mebibytes(30 + number)) }
        var cancelling = RequestCancelling(), chosen: [ByteCount] = [], now = Duration.zero
        chosen.reserveCapacity(100)
        var allocations: UInt64 = 0
        for round in 0..<20 {
            let before = allocation_count()
            while !cancelling.isDue(at: now) { now += .milliseconds(600) }
            if let request = requests.registry.largest(above: .mebibytes(1)), request.endForPressure() {
                chosen.append(request.held)
                cancelling.began(request, at: now)
            }
            if round > 2 { allocations += allocation_count() - before }
        }
        #expect(chosen == (0..<20).map { .mebibytes(69 - $0) })
        #expect(allocations == 0)
        requests.cancelAll()
    }
}
