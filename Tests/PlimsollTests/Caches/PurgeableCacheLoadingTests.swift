import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Loads of one value, in tasks and on threads.
@Suite(.serialized, .timeLimit(.minutes(5))) struct PurgeableCacheLoadingTests {
    struct Broken: Error {}

    private func cache() -> PurgeableCache<Int, String> { PurgeableCache("loading", shardCount: 4, cost: { _, value in value.utf8.count }) }

    // MARK: Forms

    private func now(_ cache: PurgeableCache<Int, String>, _ key: Int, _ load: () throws -> String) throws -> String {
        try cache.valueBlocking(forKey: key, orLoad: load)
    }

    @Test func `a caller without a task gets the blocking form`() throws {
        let cache = cache(), loads = Counter()
        func load() -> String {
            loads.add(1)
            return "v"
        }
        #expect(try cache.valueBlocking(forKey: 1) { load() } == "v")
        #expect(try cache.valueBlocking(forKey: 1) { load() } == "v" && loads.value == 1)
        #expect(throws: Broken.self) { try now(cache, 2) { throw Broken() } }
        #expect(cache.value(forKey: 2) == nil && cache.statistics.loads == 1 && cache.statistics.loadFailures == 1)
    }

    @Test func `a caller in a task gets the suspending form, with any closure`() async throws {
        let cache = cache()
        // With the blocking form the compiler would warn of a needless `await`, and warnings are errors.
        let simple = try await cache.value(forKey: 1) { "v" }
        let waiting = try await cache.value(forKey: 2, tags: ["t"]) {
            await giveWay()
            return "w"
        }
        _ = try await cache.value(forKey: 3) { [loads = Counter()] in
            loads.add(1)
            return "v"
        }
        let given: @Sendable () throws -> String = { "given" }, asynchronous: @Sendable () async throws -> String = { "asynchronous" }
        #expect(try await cache.value(forKey: 4, orLoad: given) == "given")
        #expect(try await cache.value(forKey: 5, orLoad: asynchronous) == "asynchronous")
        #expect(simple == "v" && waiting == "w" && cache.count(tag: "t") == 1)
    }

    // MARK: One load

    @Test func `T24 threads and tasks wait for one load, begun on a thread or in a task`() async throws {
        for beginsOnThread in [false, true] {
            let cache = cache(), held = HeldLoad(), blockade = Blockade(), loads = Counter()
            let leader: Task<String, any Error>
            if beginsOnThread {
                leader = onThread {
                    try cache.valueBlocking(forKey: 1) {
                        loads.add(1)
                        blockade.wait()
                        return "one"
                    }
                }
                await until { loads.value != 0 }
            } else {
                leader = Task {
                    try await cache.value(forKey: 1) {
                        loads.add(1)
                        await held.wait()
                        return "one"
                    }
                }
                await held.isReached()
            }
            let threads = (0..<5).map { _ in onThread { try cache.valueBlocking(forKey: 1) { "never" } } }
            let tasks = (0..<5).map { _ in Task { try await cache.value(forKey: 1) { "never" } } }
            await cache.hasLine(10, for: 1)
            held.open()
            blockade.open()
            for waiting in [leader] + threads + tasks { #expect(try await waiting.value == "one") }
            #expect(loads.value == 1 && cache.value(forKey: 1) == "one" && cache.loads.lineLength(of: 1) == nil)
            let statistics = cache.statistics
            #expect(statistics.misses == 11 && statistics.hits == 1 && statistics.loads == 1)
        }
    }

    @Test func `an error reaches all waiting callers, and is not kept`() async throws {
        let cache = cache(), held = HeldLoad()
        let leader = Task {
            try await cache.value(forKey: 1) {
                await held.wait()
                throw Broken()
            }
        }
        await held.isReached()
        let thread = onThread { try cache.valueBlocking(forKey: 1) { "never" } }, task = Task { try await cache.value(forKey: 1) { "never" } }
        await cache.hasLine(2, for: 1)
        held.open()
        for waiting in [leader, thread, task] { await #expect(throws: Broken.self) { try await waiting.value } }
        #expect(try now(cache, 1) { "again" } == "again")
    }

    // MARK: Handing over

    @Test func `a load of a cancelled task goes to the next in line, thread or task`() async throws {
        for nextIsThread in [false, true] {
            let cache = cache(), held = HeldLoad(), order = Log<String>()
            let leader = Task {
                try await cache.value(forKey: 1) {
                    order.add("leader")
                    await held.wait()
                    try Task.checkCancellation()
                    return "never"
                }
            }
            await held.isReached()
            let first =
                nextIsThread
                ? onThread {
                    try cache.valueBlocking(forKey: 1) {
                        order.add("first")
                        return "first's"
                    }
                }
                : Task {
                    try await cache.value(forKey: 1) {
                        order.add("first")
                        return "first's"
                    }
                }
            await cache.hasLine(1, for: 1)
            let second = onThread { try cache.valueBlocking(forKey: 1) { "never" } }
            await cache.hasLine(2, for: 1)
            leader.cancel()
            held.open()
            await #expect(throws: CancellationError.self) { try await leader.value }
            #expect(try await first.value == "first's")
            #expect(try await second.value == "first's")
            #expect(order.all == ["leader", "first"])
        }
    }

    @Test func `a caller cancelled in the wait is passed over`() async throws {
        let cache = cache(), held = HeldLoad()
        let leader = Task {
            try await cache.value(forKey: 1) {
                await held.wait()
                try Task.checkCancellation()
                return "never"
            }
        }
        await held.isReached()
        let gone = Task { try await cache.value(forKey: 1) { "never" } }
        await cache.hasLine(1, for: 1)
        let last = onThread { try cache.valueBlocking(forKey: 1) { "last" } }
        await cache.hasLine(2, for: 1)
        gone.cancel()
        await #expect(throws: CancellationError.self) { try await gone.value }
        leader.cancel()
        held.open()
        #expect(try await last.value == "last")
        await #expect(throws: CancellationError.self) { try await leader.value }
    }

    @Test func `a load that blocks in a cancelled task is handed over as well`() async throws {
        let cache = cache(), begun = Counter(), blockade = Blockade()
        let leader = Task { () throws -> String in
            // A synchronous call within a task.
            try now(cache, 1) {
                begun.add(1)
                blockade.wait()
                try Task.checkCancellation()
                return "never"
            }
        }
        // The leader holds a thread of the pool, and other tests may hold the rest: nothing here waits for the pool
        // until the leader goes on.
        let answers = Log<String>()
        #expect(
            Thread.start("next") {
                blockUntil("the load") { begun.value != 0 }
                if let value = try? cache.valueBlocking(forKey: 1, orLoad: { "mine" }) { answers.add(value) }
            })
        #expect(
            Thread.start("cancels") {
                blockUntil("the line") { cache.loads.lineLength(of: 1) == 1 }
                leader.cancel()
                blockade.open()
            })
        await until { answers.all == ["mine"] }
        await #expect(throws: CancellationError.self) { try await leader.value }
    }

    @Test func `a cancelled load without waiting callers leaves nothing behind`() async throws {
        let cache = cache(), held = HeldLoad()
        let leader = Task {
            try await cache.value(forKey: 1) {
                await held.wait()
                try Task.checkCancellation()
                return "never"
            }
        }
        await held.isReached()
        leader.cancel()
        held.open()
        await #expect(throws: CancellationError.self) { try await leader.value }
        #expect(cache.loads.lineLength(of: 1) == nil && cache.count == 0)
    }

    // MARK: Re-entrancy

    @Test func `T2 a load that asks for the same key gets an error instead of a deadlock`() async throws {
        let cache = cache()
        await #expect(throws: RecursiveLoadError.self) {
            try await cache.value(forKey: 1) { try await cache.value(forKey: 1) { "never" } }
        }
        #expect(throws: RecursiveLoadError.self) { try now(cache, 1) { try now(cache, 1) { "never" } } }
        // The same request through another key, a child task, and the forms for threads and for many keys.
        await #expect(throws: RecursiveLoadError.self) {
            try await cache.value(forKey: 1) {
                try await cache.value(forKey: 2) {
                    async let inner = cache.value(forKey: 1) { "never" }
                    return try await inner
                }
            }
        }
        await #expect(throws: RecursiveLoadError.self) { try await cache.value(forKey: 1) { try now(cache, 1) { "never" } } }
        await #expect(throws: RecursiveLoadError.self) {
            try await cache.value(forKey: 1) { try await cache.values(forKeys: [2, 1]) { _ in [:] }[1] ?? "never" }
        }
        #expect(cache.count == 0 && cache.loads.lineLength(of: 1) == nil && cache.loads.lineLength(of: 2) == nil)
        // A load that handles the error returns its own value.
        #expect(try now(cache, 1) { (try? now(cache, 1) { "never" }) ?? cache.value(forKey: 1) ?? "else" } == "else")
        let error = #expect(throws: RecursiveLoadError.self) { try now(cache, 7) { try now(cache, 7) { "never" } } }
        #expect(error?.description.contains("the key 7") == true)
    }

    @Test func `loads of other keys nest, and a task that outlives a load is no part of that load`() async throws {
        let cache = cache(), held = HeldLoad(), outliving = Mutex<Task<String, any Error>?>(nil)
        let sum = try await cache.value(forKey: 3) {
            let one = try await cache.value(forKey: 1) {
                outliving.withLock {
                    $0 = Task {
                        await held.wait()
                        return try await cache.value(forKey: 1) { "never" }
                    }
                }
                return "1"
            }
            return try one + self.now(cache, 2) { "2" }
        }
        cache.removeAll()
        held.open()
        #expect(sum == "12")
        #expect(try await outliving.withLock { $0 }?.value == "never")
    }

    @Test func `T2 keys and values die outside the locks`() throws {
        final class Watched: Hashable, Sendable {
            let number: Int
            let onDeinit: @Sendable () -> Void
            init(_ number: Int, _ onDeinit: @escaping @Sendable () -> Void = {}) { (self.number, self.onDeinit) = (number, onDeinit) }
            deinit { onDeinit() }
            static func == (left: Watched, right: Watched) -> Bool { left.number == right.number }
            func hash(into hasher: inout Hasher) { hasher.combine(number) }
        }
        let cache = PurgeableCache<Watched, Watched>("watched", limit: .bytes(3), shardCount: 1, cost: { _, _ in 1 }), deaths = Counter()
        let onDeinit: @Sendable () -> Void = {
            deaths.add(1)
            _ = try? cache.valueBlocking(forKey: Watched(1000)) { Watched(1000) }
            _ = cache.loads.lineLength(of: Watched(1))
            cache.purge(tag: "t")
        }
        for number in 0..<20 {
            // The load's own copy of the key is the last one when the load throws.
            _ = try? cache.valueBlocking(forKey: Watched(number, onDeinit), tags: ["t"]) { () throws -> Watched in
                if number % 2 == 0 { throw Broken() }
                return Watched(number, onDeinit)
            }
        }
        cache.removeAll()
        #expect(deaths.value == 30)
    }

    // MARK: Tags

    /// Covers a defect found by `LinearizabilityTests`, seed 1600666040: a load returned a value that had been removed
    /// before the load began.
    @Test(arguments: [false, true]) func `C67 a load that began before a removal is not kept, and later callers load anew`(isAll: Bool) async throws {
        let cache = cache(), begun = Counter(), removals = Counter()
        let old = onThread {
            try cache.valueBlocking(forKey: 1) {
                begun.add(1)
                blockUntil("the key is removed") { removals.value == 1 }
                return "old"
            }
        }
        await until { begun.value == 1 }
        if isAll { cache.removeAll() } else { cache.removeValue(forKey: 1) }
        // The first load is still running.
        let new = onThread { try cache.valueBlocking(forKey: 1) { "new" } }
        #expect(try await new.value == "new")
        removals.add(1)
        #expect(try await old.value == "old")
        #expect(cache.value(forKey: 1) == "new")
        #expect(cache.loads.lineLength(of: 1) == nil)
    }

    @Test func `C67 a load of one or many keys that began before a removal leaves nothing behind`() async throws {
        let cache = cache()
        #expect(
            try await cache.values(forKeys: [1, 2]) { keys in
                cache.removeValue(forKey: 1)
                return [1: "old", 2: "kept"]
            } == [1: "old", 2: "kept"])
        #expect(cache.value(forKey: 1) == nil && cache.value(forKey: 2) == "kept")
        // A removal of another, absent key during the load, before the load has kept its value.
        #expect(try cache.valueBlocking(forKey: 3) { cache.removeValue(forKey: 4) ?? "value" } == "value")
        #expect(cache.value(forKey: 3) == "value")
    }

    @Test func `a value inserted during a load stays`() async throws {
        let cache = cache()
        let loaded = try cache.valueBlocking(forKey: 1) {
            cache.insert("inserted", forKey: 1)
            return "loaded"
        }
        #expect(loaded == "loaded" && cache.value(forKey: 1) == "inserted")
        let both = try await cache.values(forKeys: [2, 3]) { _ in
            cache.insert("inserted", forKey: 2)
            return [2: "loaded", 3: "loaded"]
        }
        #expect(both == [2: "loaded", 3: "loaded"] && cache.values(forKeys: [2, 3]) == [2: "inserted", 3: "loaded"])
    }

    @Test func `C67 a thread's load is not kept if the tag is purged meanwhile`() async throws {
        let cache = cache(), blockade = Blockade(), begun = Counter()
        let early = onThread {
            try cache.valueBlocking(forKey: 1, tags: ["t"]) {
                begun.add(1)
                blockade.wait()
                return "old"
            }
        }
        await until { begun.value != 0 }
        cache.purge(tag: "t")
        #expect(try now(cache, 1) { "new" } == "new")
        blockade.open()
        #expect(try await early.value == "old")
        #expect(cache.value(forKey: 1) == "new" && cache.statistics.rejected == 0)
    }

    // MARK: All together

    @Test func `T24 a storm of threads, tasks, cancellations and purges leaves no waiter behind`() async throws {
        let seed = newSeed()
        let cache = PurgeableCache<Int, Int>("storm", limit: .bytes(8), shardCount: 2, cost: { _, _ in 1 })
        let results = Counter(), underWay = (0..<16).map { _ in Counter() }
        @Sendable func load(_ key: Int) throws -> Int {
            underWay[key].add(1)
            defer { underWay[key].add(-1) }
            if key % 5 == 0 { throw Broken() }
            return key
        }
        await withTaskGroup(of: Void.self) { group in
            for worker in 0..<4 {
                let thread = onThread {
                    var random = SeededGenerator(seed: seed &+ UInt64(worker))
                    for _ in 0..<2000 {
                        let key = Int.random(in: 0..<16, using: &random)
                        if let value = try? cache.valueBlocking(forKey: key, tags: ["t"], orLoad: { try load(key) }), value == key { results.add(1) }
                    }
                }
                group.addTask { _ = try? await thread.value }
                group.addTask {
                    var random = SeededGenerator(seed: seed &+ UInt64(worker + 100))
                    for round in 0..<1000 {
                        let key = Int.random(in: 0..<16, using: &random)
                        let task = Task {
                            try await cache.value(forKey: key) {
                                await giveWay()
                                try Task.checkCancellation()
                                return try load(key)
                            }
                        }
                        if round % 3 == 0 { task.cancel() }
                        if round % 50 == 0 { cache.purge(tag: "t") }
                        if let value = try? await task.value, value == key { results.add(1) }
                        let many = try? await cache.values(forKeys: key..<min(16, key + 3)) { keys in
                            var values: [Int: Int] = [:]
                            for key in keys where key % 5 != 0 { values[key] = try load(key) }
                            return values
                        }
                        for (key, value) in many ?? [:] where key == value { results.add(1) }
                    }
                }
            }
        }
        #expect(results.value > 8000 && (0..<16).allSatisfy { cache.loads.lineLength(of: $0) == nil && underWay[$0].value == 0 })
        #expect(cache.byteCount <= 8 && cache.byteCount == cache.count)
    }
}

/// The line of callers that wait for a load.
@Suite(.timeLimit(.minutes(5))) struct LoadLineTests {
    private func waiters(_ count: Int) -> [LoadWaiter<Int>] { (0..<count).map { _ in LoadWaiter(mayLead: true) } }

    @Test func `waiters are served in the order of arrival, and abandoned ones are removed once the line has doubled`() {
        var line = LoadLine<Int>()
        let all = waiters(64)
        for waiter in all { #expect(line.append(waiter).isEmpty) }
        #expect(line.popFirst() === all[0] && line.popFirst() === all[1] && line.count == 62)
        for waiter in all[10..<40] { _ = waiter.complete(.cancelled) }
        let last = LoadWaiter<Int>(mayLead: true), gone = line.append(last)
        #expect(gone.elementsEqual(all[10..<40]) { $0 === $1 } && line.count == 33)
        let expected = all[2..<10] + all[40...] + [last]
        #expect(line.waiters.elementsEqual(expected) { $0 === $1 })
        for waiter in expected { #expect(line.popFirst() === waiter) }
        #expect(line.popFirst() == nil && line.count == 0)
    }

    @Test func `the length of a line follows the live waiters, with any number of abandoned ones`() {
        var line = LoadLine<Int>(), gone = 0
        let patient = waiters(100)
        for waiter in patient { gone += line.append(waiter).count }
        for waiter in waiters(80_000) {
            gone += line.append(waiter).count
            _ = waiter.complete(.cancelled)
            if line.count > 201 { Issue.record("\(line.count) in line") }
        }
        #expect(gone + line.count == 80_100 && line.waiters.prefix(100).elementsEqual(patient) { $0 === $1 })
    }

    @Test func `callers that give up behind a hanging load leave nothing behind`() async throws {
        let cache = PurgeableCache<Int, String>("hanging") { _, value in value.utf8.count }, held = HeldLoad()
        let leader = Task {
            try await cache.value(forKey: 1) {
                await held.wait()
                return "one"
            }
        }
        await until("the load has begun") { held.begun.value == 1 }
        for _ in 0..<2000 {
            let caller = Task { try await cache.value(forKey: 1) { "never" } }
            caller.cancel()
            await #expect(throws: CancellationError.self) { try await caller.value }
        }
        #expect(cache.loads.lineLength(of: 1).map { $0 <= 65 } == true, "\(cache.loads.lineLength(of: 1) ?? -1)")
        held.open()
        #expect(try await leader.value == "one" && cache.loads.lineLength(of: 1) == nil)
    }
}
