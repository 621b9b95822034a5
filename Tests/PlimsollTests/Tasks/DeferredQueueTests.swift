import Testing

@testable import Plimsoll

/// The requests for deferred work, in memory and as bytes.
@Suite struct DeferredQueueTests {
    private func s(_ count: Int) -> Duration { .seconds(count) }

    @Test func `requests of one moment keep their order, also from one run to the next`() throws {
        var queue = DeferredQueue(), next = DeferredQueue()
        let ids = (0..<20).map { "job-\($0)" }
        for id in ids { queue.ask(id, after: .zero, .normal, now: s(5), wall: s(100)) }
        #expect(queue.inOrder.map(\.id) == ids)
        let old = try DeferredQueue.decode(queue.encoded)
        #expect(old.map(\.id) == ids && old.allSatisfy { $0.delay == .zero && $0.attempts == 0 })
        next.takeOver(old, now: s(7), wall: s(200))
        #expect(next.inOrder.map(\.id) == ids && next.inOrder.allSatisfy { $0.due == .seconds(7) && $0.dueWall == .seconds(200) })
    }

    @Test func `an empty queue is read back as empty`() throws {
        let none = try DeferredQueue.decode(DeferredQueue().encoded)
        #expect(none.isEmpty)
    }

    @Test func `a request taken over waits for the rest of its delay, and never longer than planned`() throws {
        var first = DeferredQueue()
        first.ask("job", after: s(60), .warning, now: s(1), wall: s(100))
        let old = try DeferredQueue.decode(first.encoded)
        for (wall, left) in [(0, 60), (100, 60), (130, 30), (160, 0), (500, 0)] {
            var queue = DeferredQueue()
            queue.takeOver(old, now: s(7), wall: s(wall))
            let ask = try #require(queue.inOrder.first)
            #expect(ask.due == s(7 + left) && ask.dueWall == s(wall + left) && ask.delay == s(60), "\(wall)")
            #expect(ask.level == .warning && ask.attempts == 0)
        }
    }

    @Test func `no request is taken over under an id that this run has asked for or cancelled`() throws {
        var first = DeferredQueue(), queue = DeferredQueue()
        for id in ["done", "cancelled", "left"] { first.ask(id, after: s(60), .normal, now: .zero, wall: .zero) }
        let old = try DeferredQueue.decode(first.encoded)
        queue.ask("done", after: .zero, .normal, now: .zero, wall: .zero)
        let ask = try #require(queue.inOrder.first), wasThere = queue.remove("cancelled")
        queue.ended(ask, .finished, now: .zero, wall: .zero)
        queue.takeOver(old, now: .zero, wall: .zero)
        #expect(!wasThere && queue.inOrder.map(\.id) == ["left"])
    }

    @Test func `a run that was refused is tried after a second, and one that did not finish after a longer time`() throws {
        var queue = DeferredQueue()
        queue.ask("job", after: s(60), .normal, now: .zero, wall: .zero)
        let replaced = try #require(queue.inOrder.first)
        queue.ask("job", after: s(90), .normal, now: .zero, wall: .zero)
        queue.ended(replaced, .finished, now: s(1), wall: s(1))
        let current = try #require(queue.inOrder.first)
        #expect(current.due == s(90))
        let rows: [(outcome: DeferredQueue.Outcome, delay: Int, attempts: Int)] = [
            (.refused, 1, 0), (.unfinished, 30, 1), (.refused, 1, 1), (.unfinished, 60, 2),
        ]
        for row in rows {
            queue.ended(current, row.outcome, now: s(100), wall: s(1000))
            let next = try #require(queue.inOrder.first)
            #expect(next.due == s(100 + row.delay) && next.dueWall == s(1000 + row.delay) && next.attempts == row.attempts)
        }
        queue.ended(current, .finished, now: s(200), wall: s(200))
        let isGone = queue.inOrder.isEmpty, wasThere = queue.remove("job")
        #expect(isGone && !wasThere)
    }

    @Test func `the next request is the first one later than now`() {
        var queue = DeferredQueue()
        for delay in [10, 5] { queue.ask("\(delay)", after: s(delay), .normal, now: .zero, wall: .zero) }
        for (now, next) in [(0, 5), (4, 5), (5, 10), (9, 10), (10, nil)] as [(Int, Int?)] {
            #expect(queue.nextDue(after: s(now)) == next.map { Duration.seconds($0) }, "\(now)")
        }
    }

    @Test func `kept bytes without fields are read, and nothing beyond their end`() throws {
        var none = KeptBytes("MARK", version: 3), some = KeptBytes("MARK", version: 3)
        var empty = try KeptBytes(reading: none.sealed(), "MARK", version: 3)
        let number = try? empty.number(), field = try? empty.field()
        #expect(number == nil && field == nil)
        some.put(Int64.min)
        some.put("text".utf8)
        some.put(-2)
        var reader = try KeptBytes(reading: some.sealed(), "MARK", version: 3)
        let first = try reader.number(), text = try reader.text(), last = try reader.number()
        let beyond = try? reader.number()
        #expect(first == .min && text == "text" && last == -2 && beyond == nil)
    }
}
