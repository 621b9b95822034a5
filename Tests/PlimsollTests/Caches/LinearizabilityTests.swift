import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Histories of both caches, checked against a map that may forget: a cache may miss, but never returns a wrong value.
@Suite struct LinearizabilityTests {
    // MARK: The checker

    private func isLinearizable(_ operations: (KeyHistory.Call, Int?, ClosedRange<Int64>)...) -> Bool {
        KeyHistory(operations: operations.map { .init(call: $0.0, answer: $0.1, begin: $0.2.lowerBound, end: $0.2.upperBound) }).isLinearizable
    }

    @Test func `answers that an order explains are accepted`() {
        #expect(isLinearizable((.insert(1), nil, 0...9), (.read, 1, 1...2), (.insert(2), nil, 3...4), (.read, 2, 5...6)))
        #expect(isLinearizable((.insert(1), nil, 0...9), (.insert(2), nil, 0...9), (.read, 2, 10...11), (.read, 2, 12...13)))
        #expect(isLinearizable((.insert(1), nil, 0...1), (.read, nil, 2...3), (.insert(2), nil, 4...5), (.remove, 2, 6...7)))
        // Two loads at the same time share a value. The callers get the value even if a newer one is stored.
        #expect(isLinearizable((.load(1), 2, 0...5), (.load(2), 2, 1...6), (.read, 2, 7...8)))
        #expect(isLinearizable((.load(1), 1, 0...5), (.insert(2), nil, 1...2), (.read, 2, 6...7)))
        #expect(isLinearizable((.load(1), 1, 0...5), (.purge, nil, 1...2), (.read, 1, 6...7)))
    }

    @Test func `answers that no order explains are refused`() {
        #expect(!isLinearizable((.read, 1, 0...1)), "a value that was never stored")
        #expect(!isLinearizable((.read, 1, 0...1), (.insert(1), nil, 2...3)), "a value from the future")
        #expect(!isLinearizable((.insert(1), nil, 0...1), (.insert(2), nil, 2...3), (.read, 1, 4...5)), "a value that was replaced")
        #expect(!isLinearizable((.insert(1), nil, 0...1), (.purge, nil, 2...3), (.read, 1, 4...5)), "a value that was purged")
        #expect(!isLinearizable((.insert(1), nil, 0...1), (.remove, 1, 2...3), (.remove, 1, 4...5)), "a value that was removed twice")
        #expect(!isLinearizable((.insert(1), nil, 0...1), (.read, nil, 2...3), (.read, 1, 4...5)), "a value that comes back")
        #expect(!isLinearizable((.insert(1), nil, 0...1), (.load(2), 3, 2...3)), "a value that nothing loaded")
        #expect(!isLinearizable((.load(1), 1, 0...1), (.load(2), 1, 4...5), (.load(3), 2, 6...7)), "a value that no operation has loaded")
        // Each pair of reads is possible alone, but not both: the two pairs see the inserts in different orders.
        #expect(
            !isLinearizable(
                (.insert(1), nil, 0...9), (.insert(2), nil, 0...9), (.read, 1, 10...11), (.read, 2, 12...13), (.read, 1, 14...15)))
    }

    @Test func `a value whose load began before a removal is stale afterwards`() {
        func isFresh(_ read: ClosedRange<Int64>) -> Bool {
            KeyHistory(operations: [
                .init(call: .load(1), answer: 1, begin: 0, end: 9, loadBegin: 1), .init(call: .remove, answer: nil, begin: 3, end: 4),
                .init(call: .read, answer: 1, begin: read.lowerBound, end: read.upperBound),
            ]).isFresh
        }
        #expect(isFresh(2...9) && isFresh(4...9) && !isFresh(5...6) && !isFresh(10...11))
    }

    // MARK: Histories

    /// A recording of calls of a cache from several threads.
    ///
    /// Each thread takes the next operation of a list, so that neighbours in the list run at the same time without a
    /// barrier. A history has three keys of its own.
    private final class Recording: Sendable {
        static let keys = 3, operationsOfHistory = 12
        let histories: Int, seed: UInt64
        private let next = Atomic(0)
        private let recorded = Mutex<[(key: Int, operation: KeyHistory.Operation)]>([])

        init(histories: Int, seed: UInt64) { (self.histories, self.seed) = (histories, seed) }

        /// Runs operations until none is left. Each thread calls this method.
        ///
        /// - Parameter perform: performs the call on the key and returns the answer. Calls the closure `loads` where a
        ///   load begins.
        func work(_ perform: (KeyHistory.Call, _ key: Int, _ loads: () -> Void) -> Int?) {
            var own: [(key: Int, operation: KeyHistory.Operation)] = []
            func now() -> Int64 {
                let parts = (ContinuousClock.now - Self.origin).components
                return parts.seconds * 1_000_000_000 + parts.attoseconds / 1_000_000_000
            }
            while true {
                let number = next.wrappingAdd(1, ordering: .relaxed).oldValue
                guard number < histories * Self.operationsOfHistory else { break }
                var random = SeededGenerator(seed: seed &+ UInt64(number) &* 0x9e37_79b9)
                let key = number / Self.operationsOfHistory * Self.keys + Int.random(in: 0..<Self.keys, using: &random)
                let call: KeyHistory.Call =
                    switch Int.random(in: 0..<20, using: &random) {
                    case 0..<6: .insert(number + 1)
                    case 6..<13: .read
                    case 13..<16: .remove
                    case 16: .purge
                    default: .load(number + 1)
                    }
                var loadBegin: Int64?
                let begin = now(), answer = perform(call, key) { loadBegin = now() }, end = now()
                own.append((key, KeyHistory.Operation(call: call, answer: answer, begin: begin, end: end, loadBegin: loadBegin)))
            }
            recorded.withLock { $0 += own }
        }

        private static let origin = ContinuousClock.now

        /// Returns the histories that no order explains, as text, and the number of keys with calls at the same time.
        func check() -> (wrong: [String], overlapping: Int) {
            let all = recorded.withLock { $0 }
            // A purge concerns all keys of its history.
            var byKey: [[KeyHistory.Operation]] = Array(repeating: [], count: histories * Self.keys)
            for (key, operation) in all {
                if operation.call == .purge {
                    for other in 0..<Self.keys { byKey[key / Self.keys * Self.keys + other].append(operation) }
                } else {
                    byKey[key].append(operation)
                }
            }
            let overlapping = byKey.count { operations in
                let sorted = operations.sorted { $0.begin < $1.begin }
                return zip(sorted, sorted.dropFirst()).contains { $0.end >= $1.begin }
            }
            func isRight(_ history: KeyHistory) -> Bool { history.isLinearizable && history.isFresh }
            let wrong = byKey.indices.filter { !isRight(KeyHistory(operations: byKey[$0])) }.map { key in
                "key \(key) of seed \(seed): "
                    + byKey[key].sorted { $0.begin < $1.begin }.map(\.text).joined(separator: "; ")
            }
            return (wrong, overlapping)
        }
    }

    /// Number of histories of a test; `PLIMSOLL_RUNS` multiplies them.
    private static let histories = 5000

    private func check(_ cache: String, threads: Int, _ perform: @escaping @Sendable (KeyHistory.Call, Int, () -> Void) -> Int?) async {
        for seed in seeds(0..<0) {
            let recording = Recording(histories: Self.histories, seed: seed), start = Blockade(), refused = Counter()
            await withTaskGroup(of: Void.self) { group in
                for _ in 0..<threads {
                    group.addTask {
                        await withCheckedContinuation { done in
                            let isStarted = Thread.start("history") {
                                start.wait()
                                recording.work(perform)
                                done.resume()
                            }
                            guard !isStarted else { return }
                            refused.add(1)
                            done.resume()
                        }
                    }
                }
                // On a busy machine the first thread could otherwise end before the pool starts the next one.
                await until("all threads") { start.count + refused.value >= threads }
                start.open()
            }
            let (wrong, overlapping) = recording.check()
            print("figure histories.\(cache).checked \(Self.histories) count")
            print("figure histories.\(cache).overlapping \(overlapping) count")
            print("figure histories.\(cache).wrong \(wrong.count) count")
            #expect(overlapping > 0)
            #expect(wrong.isEmpty, "\(wrong.count) histories are wrong; the first: \(wrong.prefix(3))")
        }
    }

    /// Returns the tag of a history's entries. Some other histories have the same tag: one more purge only means one
    /// more miss.
    private static func tags(_ key: Int) -> [String] { ["tag \(key / Recording.keys % 8)"] }

    @Test(arguments: [2, 3, 4]) func `a heap cache's histories are linearizable`(threads: Int) async {
        // The limit is small, so that entries are soon evicted and slots are used again.
        let cache = PurgeableCache<Int, Int>("histories", limit: .bytes(64), shardCount: 4) { _, _ in 1 }
        await check("heap", threads: threads) { call, key, loads in
            switch call {
            case .insert(let value):
                cache.insert(value, forKey: key, tags: Self.tags(key))
                return nil
            // Both forms of a read.
            case .read: return key % 2 == 0 ? cache.value(forKey: key) : cache.withValue(forKey: key) { $0 }
            case .remove: return cache.removeValue(forKey: key)
            case .purge:
                cache.purge(tag: Self.tags(key)[0])
                _ = cache.release(8)
                return nil
            case .load(let value):
                return try? cache.valueBlocking(forKey: key, tags: Self.tags(key)) {
                    loads()
                    return value
                }
            }
        }
    }

    @Test(arguments: [2, 3, 4]) func `a volatile cache's histories are linearizable`(threads: Int) async {
        let cache = VolatileCache<Int, Int>("histories", limit: .kibibytes(64))
        await check("volatile", threads: threads) { call, key, loads in
            switch call {
            case .insert(let value):
                cache.insert(value, forKey: key, tags: Self.tags(key))
                return nil
            case .read: return cache.value(forKey: key)
            case .remove: return cache.removeValue(forKey: key)
            case .purge:
                cache.purge(tag: Self.tags(key)[0])
                return nil
            case .load(let value):
                return try? cache.valueBlocking(forKey: key, tags: Self.tags(key)) {
                    loads()
                    return value
                }
            }
        }
    }
}
