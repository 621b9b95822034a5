import CPlimsollMemory
import Glibc
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Budgets that count charged bytes. `Tests/Allocators` has the tests of the allocator count.
@Suite(.timeLimit(.minutes(5))) struct MemoryBudgetTests {
    @Test func `a budget counts charged bytes, and a part of a budget also charges the whole`() throws {
        #expect(MemoryBudget.current == nil)
        try withMemoryMeter(name: "whole") { whole in
            #expect(MemoryBudget.current === whole && whole.limit == nil && whole.live == .zero)
            whole.charge(.mebibytes(3))
            try withMemoryMeter(.mebibytes(10), name: "part") { part in
                #expect(MemoryBudget.current === part && part.limit == .mebibytes(10))
                part.charge(.mebibytes(5))
                part.credit(.mebibytes(1))
                #expect(part.live == .mebibytes(4) && part.peak == .mebibytes(5))
                try part.check()
            }
            #expect(whole.live == .mebibytes(7) && whole.peak == .mebibytes(8) && MemoryBudget.current === whole)
        }
        #expect(MemoryBudget.current == nil)
    }

    @Test func `parts of a body are charged, or copied while the allocator counts`() async {
        // In a process of its own: all budgets of a process have one meter.
        await #expect(processExitsWith: .success) {
            let budget = MemoryBudget(name: "upload")
            defer { budget.end() }
            let body = AsyncStream<String> { stream in
                for part in ["a", "bc"] { stream.yield(part) }
                stream.finish()
            }
            var parts = ChargedSequence(body, to: budget, bytes: { $0.count }, copy: { "copy of " + $0 }).makeAsyncIterator()
            guard await parts.next() == "a", budget.live == ByteCount(1) else { exit(2) }
            plimsoll_budget_set_meter { _ in }
            guard await parts.next() == "copy of bc", budget.live == ByteCount(1), await parts.next() == nil else { exit(3) }
            exit(0)
        }
    }

    @Test func `a budget is not credited for the original of a copied part`() async {
        await #expect(processExitsWith: .success) {
            let isRight = await withMemoryMeter(name: "upload") { budget in
                let body = AsyncStream<Part> { stream in
                    stream.yield(Part("the original"))
                    stream.finish()
                }
                var parts = ChargedSequence(body, to: budget, bytes: { _ in 1 }, copy: { _ in Part("a copy") }).makeAsyncIterator()
                plimsoll_budget_set_meter { steps.add($0 == nil ? "settled for none" : "settled for a budget") }
                let part = await parts.next()
                let right = ["settled for a budget", "the original is freed", "settled for none"]
                return steps.all == right && part?.name == "a copy"
            }
            exit(isRight ? 0 : 2)
        }
    }

    /// The end of a message that is handed over.
    enum Taking: CaseIterable { case taken, freedByTheTask, refused }

    @Test(arguments: Taking.allCases)
    func `bytes that are handed over are credited once, when taken, and not after an error`(taking: Taking) async throws {
        struct Refused: Error {}
        let registry = BudgetRegistry(), budget = MemoryBudget(name: "GET /stream", registry: registry)
        defer { budget.end() }
        try await budget.run {
            budget.charge(.mebibytes(8))
            let pause = Pause(), isWaiting = Counter()
            let sending = Task {
                try await MemoryBudget.handingOver {
                    MemoryBudget.current?.charge(.mebibytes(4))
                    isWaiting.add(1)
                    _ = await pause.wait()
                    if taking == .freedByTheTask { MemoryBudget.current?.credit(.mebibytes(4)) }
                    if taking == .refused { throw Refused() }
                }
            }
            await until("the message to wait") { isWaiting.value == 1 }
            #expect(registry.all.count == 1, "a part is no request of the list")
            #expect(budget.live == .mebibytes(12), "not taken yet")
            pause.end(true)
            _ = await sending.result
            #expect(budget.live == .mebibytes(taking == .refused ? 12 : 8))
        }
    }

    @Test func `a manager without a memory count of requests reports the reason and the remedy`() throws {
        let signal = try #require(ResourceManager(source: ScriptedPressureSource()).capabilities["requests"])
        #expect(!signal.isLive && signal.detail.hasPrefix("the memory of requests is not counted: "))
        #expect(signal.remedy?.contains("Jemalloc.meterRequests()") == true)
    }

    @Test func `absurd numbers neither trap nor turn the count round`() {
        withMemoryMeter(name: "absurd") { budget in
            budget.credit(.mebibytes(1))
            #expect(budget.live == .zero && budget.peak == .zero, "more was freed than allocated")
            budget.charge(.zero - .mebibytes(5))
            budget.credit(.zero - .mebibytes(5))
            #expect(budget.live == .zero)
            budget.charge(.max)
            #expect(budget.live > .gibibytes(1 << 20))
            budget.credit(.max)
            budget.credit(.max)
            #expect(budget.live == .zero && !budget.isExceeded)
        }
    }

    @Test func `a request above its limit is cancelled, and says why`() async throws {
        let sawCancellation = Counter()
        let excess = try await #require(throws: MemoryBudgetExceeded.self) {
            try await withMemoryBudget(.mebibytes(32), name: "POST /import") {
                let budget = try #require(MemoryBudget.current)
                budget.charge(.mebibytes(32))
                #expect(!Task.isCancelled && !budget.isExceeded, "up to the limit")
                budget.charge(.mebibytes(1))
                #expect(budget.isExceeded)
                do { try await untilCancelled() } catch {
                    sawCancellation.add(1)
                    throw error
                }
            }
        }
        #expect(sawCancellation.value == 1 && !excess.isForPressure)
        #expect(excess.name == "POST /import" && excess.held == .mebibytes(33) && excess.limit == .mebibytes(32))
        #expect(excess.description == "POST /import was cancelled because it held 33 MiB of memory, above its limit of 32 MiB")
    }

    @Test func `results and errors of a request that stays within its limit pass through`() async throws {
        struct Own: Error {}
        #expect(try await withMemoryBudget(.mebibytes(1), name: "one") { 7 } == 7)
        await #expect(throws: Own.self) { try await withMemoryBudget(name: "two") { throw Own() } }
        let task = Task { try await withMemoryBudget(.mebibytes(8), name: "three") { try await untilCancelled() } }
        task.cancel()
        await #expect(throws: CancellationError.self, "cancelled from outside, not for memory") { try await task.value }
        // A request that completes all the same returns a result.
        #expect(
            try await withMemoryBudget(.mebibytes(1), name: "four") {
                MemoryBudget.current?.charge(.mebibytes(2))
                return 4
            } == 4)
    }

    @Test func `a request of a caller that is cancelled already begins cancelled`() async throws {
        let seen = Log<Bool>()
        let caller = Task {
            _ = withUnsafeCurrentTask { $0?.cancel() }
            try await withMemoryBudget(name: "GET /late") { seen.add(Task.isCancelled) }
        }
        try await caller.value
        #expect(seen.all == [true])
    }

    @Test func `a part above its own limit does not end the whole`() async throws {
        let left = try await withMemoryBudget(.mebibytes(100), name: "whole") {
            await #expect(throws: MemoryBudgetExceeded.self) {
                try await withMemoryBudget(.mebibytes(4), name: "part") {
                    MemoryBudget.current?.charge(.mebibytes(5))
                    try await untilCancelled()
                }
            }
            return try #require(MemoryBudget.current).live
        }
        #expect(left == .mebibytes(5))
    }

    @Test func `child tasks, unstructured tasks and actors work for the request's budget`() async throws {
        actor Store { func add() { MemoryBudget.current?.charge(.mebibytes(1)) } }
        let live = try await withMemoryBudget(name: "request") {
            let store = Store()
            await withTaskGroup { group in for _ in 0..<8 { group.addTask { MemoryBudget.current?.charge(.mebibytes(1)) } } }
            await Task { MemoryBudget.current?.charge(.mebibytes(1)) }.value
            await store.add()
            return try #require(MemoryBudget.current).live
        }
        #expect(live == .mebibytes(10))
    }

    @Test func `a meter above its limit cancels nothing, and its check throws`() throws {
        let excess = try #require(throws: MemoryBudgetExceeded.self) {
            try withMemoryMeter(.mebibytes(2), name: "in place") { budget in
                budget.charge(.mebibytes(3))
                #expect(budget.isExceeded && !Task.isCancelled)
                budget.credit(.mebibytes(3))
                try budget.check()
            }
        }
        #expect(excess.held == .mebibytes(3), "the bytes when the limit was passed")
    }

    @Test func `each of many requests above the limit is cancelled once, by any of its threads`() async throws {
        let registry = BudgetRegistry()
        await withTaskGroup { group in
            for number in 0..<100 {
                group.addTask {
                    let budget = MemoryBudget(limit: .mebibytes(number % 2 == 0 ? 1 : 1000), name: "\(number)", registry: registry)
                    defer {
                        budget.end()
                        budget.end()
                    }
                    let isEnded = await isEndedForMemory {
                        try await budget.run {
                            await withTaskGroup { group in for _ in 0..<8 { group.addTask { budget.charge(.mebibytes(2)) } } }
                            if number % 2 == 0 { try await untilCancelled() }
                        }
                    }
                    #expect(isEnded == (number % 2 == 0))
                }
            }
        }
        await until("all to be counted") { registry.ended.overLimit == 50 }
        #expect(registry.all.isEmpty && registry.ended.forPressure == 0)
    }

    @Test func `a request cancelled between two parts does not begin the second part`() async throws {
        let registry = BudgetRegistry(), budget = MemoryBudget(limit: .mebibytes(1), name: "GET /stream", registry: registry)
        try await budget.run {}
        budget.charge(.mebibytes(2))
        let begun = Counter()
        await #expect(throws: MemoryBudgetExceeded.self) { try await budget.run { begun.add(1) } }
        await #expect(throws: MemoryBudgetExceeded.self) { try await budget.runInPlace { begun.add(1) } }
        #expect(begun.value == 0 && !budget.hasEnded)
        budget.end()
        #expect(budget.hasEnded && registry.ended.overLimit == 1, "counted, whether the watch was faster or not")
    }

    @Test func `a cancellation handler that blocks does not keep others from being cancelled`() async throws {
        let registry = BudgetRegistry(), blockade = Parker(), isWaiting = Counter(), isBlocked = Counter()
        let first = MemoryBudget(limit: .mebibytes(1), name: "first", registry: registry)
        let second = MemoryBudget(limit: .mebibytes(1), name: "second", registry: registry)
        // Swift locks a task's status while its cancellation handlers run. A thread that resumes such a task blocks
        // until the handler returns, so the thread of `until` would block too.
        let pause = Pause()
        let stuck = Task {
            try await first.run {
                _ = await withTaskCancellationHandler {
                    isWaiting.add(1)
                    return await pause.wait()
                } onCancel: {
                    isBlocked.add(1)
                    blockade.park()
                }
            }
        }
        await until("the first request to wait") { isWaiting.value == 1 }
        first.charge(.mebibytes(2))
        await until("the handler to block") { isBlocked.value == 1 }
        await #expect(throws: MemoryBudgetExceeded.self) {
            try await second.run {
                second.charge(.mebibytes(2))
                try await untilCancelled()
            }
        }
        blockade.unpark()
        pause.end(true)
        try? await stuck.value
        first.end()
        second.end()
    }

    @Test func `T7 a request is cancelled on a thread off the pool, however early the limit is passed`() async throws {
        let registry = BudgetRegistry(), names = Log<String>()
        await withTaskGroup { group in
            for _ in 0..<8 {
                group.addTask {
                    for _ in 0..<200 {
                        let budget = MemoryBudget(limit: .kibibytes(1), name: "early", registry: registry)
                        let isCancelled = Counter()
                        _ = try? await budget.run {
                            await withTaskCancellationHandler {
                                budget.charge(.kibibytes(2))
                                // A body that ends once the task is marked as cancelled removes the handler, which may
                                // not have run yet.
                                _ = await until("the cancellation") { isCancelled.value == 1 }
                            } onCancel: {
                                names.add(threadName)
                                isCancelled.add(1)
                            }
                        }
                        budget.end()
                    }
                }
            }
        }
        #expect(names.all.count == 1600 && Set(names.all) == ["plimsoll-calls"], "\(Set(names.all))")
    }

    @Test func `budgets that end while they are cancelled neither hang nor crash`() async throws {
        let registry = BudgetRegistry(), seed = newSeed()
        await withTaskGroup { group in
            for number in 0..<16 {
                group.addTask {
                    var random = SeededGenerator(seed: seed &+ UInt64(number))
                    for _ in 0..<200 {
                        let spins = Int.random(in: 0...3, using: &random)
                        let budget = MemoryBudget(limit: .kibibytes(1), name: "brief", registry: registry)
                        _ = try? await budget.run {
                            budget.charge(.kibibytes(2))
                            for _ in 0..<spins { await giveWay() }
                        }
                        budget.end()
                    }
                }
            }
        }
        #expect(registry.all.isEmpty)
    }
}

/// The steps of a test that runs in a process of its own.
private let steps = Log<String>()

/// A part of a body that notes its end.
private final class Part: Sendable {
    let name: String

    init(_ name: String) { self.name = name }
    deinit { steps.add("\(name) is freed") }
}

/// The name of the calling thread.
private var threadName: String {
    guard let file = fopen("/proc/thread-self/comm", "r") else { return "" }
    defer { fclose(file) }
    var name = [CChar](repeating: 0, count: 32)
    fgets(&name, 32, file)
    return String(decoding: name.prefix { $0 > 32 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
}

/// Runs a request and returns true if the request was ended for its memory.
private func isEndedForMemory(_ body: () async throws -> Void) async -> Bool {
    do {
        try await body()
        return false
    } catch { return error is MemoryBudgetExceeded }
}
