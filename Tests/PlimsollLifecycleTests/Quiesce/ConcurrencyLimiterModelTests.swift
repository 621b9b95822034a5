import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// The limiter's decisions beside those of a simple model.
@Suite struct ConcurrencyLimiterModelTests {
    private struct Model {
        struct Waiter: Equatable {
            var id: Int
            var deadline: Duration
            var pauseDeadline: Duration
        }

        var rules: LimiterState<Int>.Rules
        var running = 0
        var waiting: [Waiter] = []
        var isStopped = false

        func room(_ extent: QuiesceExtent) -> Int { extent.count(of: rules.limit, inBackground: rules.inBackground) }

        mutating func admit(_ extent: QuiesceExtent) -> [Int] {
            let count = max(0, min(waiting.count, room(extent) - running))
            defer {
                waiting.removeFirst(count)
                running += count
            }
            return waiting[..<count].map(\.id)
        }
    }

    private static let extents: [QuiesceExtent] = [
        .open, .narrowed(to: .half), .narrowed(to: .quarter), .narrowed(to: .least), .background, .paused,
        QuiesceExtent(profile: .paused, isHeld: true),
    ]

    @Test func `C54 C82 T28 random calls run and queue the same work as the model`() {
        let seed = newSeed()
        var seen = (admitted: 0, refused: 0, expired: 0, left: 0)
        for run in 0..<400 {
            var random = SeededGenerator(seed: seed &+ UInt64(run))
            let rules = LimiterState<Int>.Rules(
                limit: Int.random(in: 1...8, using: &random), inBackground: Int.random(in: 0...2, using: &random),
                mostWaiting: Int.random(in: 0...40, using: &random),
                pausePatience: [nil, .zero, .seconds(5)].randomElement(using: &random) ?? nil)
            var state = LimiterState<Int>(rules), model = Model(rules: rules)
            var tickets: [Int: UInt64] = [:], extent = QuiesceExtent.open, now = Duration.zero, sweep: LimiterState<Int>.Sweep?

            func compare() {
                if !extent.isHeld, (model.room(extent) == 0) != model.isStopped {
                    model.isStopped.toggle()
                    if let limit = rules.pausePatience, limit > .zero {
                        for index in model.waiting.indices where !model.isStopped || model.waiting[index].pauseDeadline == .max {
                            model.waiting[index].pauseDeadline = model.isStopped ? now + limit : .max
                        }
                    }
                }
                let refused = model.isStopped && rules.pausePatience == .zero && !extent.isHeld ? model.waiting.map(\.id) : []
                if !refused.isEmpty { model.waiting = [] }
                let dequeued = state.poll(extent, at: now)
                #expect(dequeued.refused.map(\.waiter) == refused, "seed \(seed) run \(run)")
                #expect(dequeued.admitted == model.admit(extent), "seed \(seed) run \(run)")
                sweep = dequeued.sweep ?? sweep
                seen.admitted += dequeued.admitted.count
                seen.refused += refused.count
            }

            for step in 0..<300 {
                now += .milliseconds(Int.random(in: 0...800, using: &random))
                while let due = sweep, due.due <= now {
                    sweep = nil
                    let dequeued = state.sweep(due.number, at: now)
                    let expected = model.waiting.filter { min($0.deadline, $0.pauseDeadline) <= now }.map(\.id)
                    model.waiting.removeAll { expected.contains($0.id) }
                    #expect(dequeued.refused.map(\.waiter) == expected, "seed \(seed) run \(run)")
                    sweep = dequeued.sweep
                    seen.expired += expected.count
                }
                #expect(model.waiting.allSatisfy { min($0.deadline, $0.pauseDeadline) > now - .milliseconds(10) }, "seed \(seed) run \(run)")
                switch Int.random(in: 0..<10, using: &random) {
                case 0..<5:
                    let patience: Duration? = Bool.random(using: &random) ? .seconds(Int.random(in: 0...9, using: &random)) : nil
                    switch state.arrive(step, extent, patience: patience, at: now) {
                    case .admitted:
                        #expect(model.waiting.isEmpty && model.running < model.room(extent), "seed \(seed) run \(run)")
                        model.running += 1
                    case .refused(let reason):
                        let stops = model.isStopped || (model.room(extent) == 0 && !extent.isHeld)
                        switch reason {
                        case .queueIsFull: #expect(model.waiting.count == rules.mostWaiting, "seed \(seed) run \(run)")
                        case .paused: #expect(rules.pausePatience == .zero && stops, "seed \(seed) run \(run)")
                        default: #expect(patience == .zero, "seed \(seed) run \(run)")
                        }
                    case .waits(let ticket, let next):
                        #expect(!model.waiting.isEmpty || model.running >= model.room(extent), "seed \(seed) run \(run)")
                        tickets[step] = ticket
                        var pauseDeadline = Duration.max
                        if let limit = rules.pausePatience, limit > .zero, model.isStopped || (model.room(extent) == 0 && !extent.isHeld) {
                            pauseDeadline = now + limit
                        }
                        model.waiting.append(.init(id: step, deadline: patience.map { now + $0 } ?? .max, pauseDeadline: pauseDeadline))
                        sweep = next ?? sweep
                    }
                case 5..<7:
                    guard model.running > 0 else { continue }
                    model.running -= 1
                    #expect(state.leave(unused: false) == !model.waiting.isEmpty, "seed \(seed) run \(run)")
                    compare()
                case 7:
                    guard let ticket = tickets.randomElement(using: &random) else { continue }
                    let index = model.waiting.firstIndex { $0.id == ticket.key }
                    #expect(state.remove(ticket.value) == index.map { model.waiting[$0].id }, "seed \(seed) run \(run)")
                    if let index { model.waiting.remove(at: index) }
                    tickets[ticket.key] = nil
                    seen.left += index == nil ? 0 : 1
                default:
                    extent = Self.extents.randomElement(using: &random) ?? .open
                    compare()
                }
                #expect(state.running == model.running && state.waiting == model.waiting.count, "seed \(seed) run \(run)")
            }
            extent = .open
            compare()
            while model.running > 0 {
                model.running -= 1
                _ = state.leave(unused: false)
                compare()
            }
            #expect(state.waiting == 0 && state.running == 0, "seed \(seed) run \(run)")
        }
        #expect(seen.admitted > 0 && seen.refused > 0 && seen.expired > 0 && seen.left > 0, "the property was never exercised")
    }

    @Test func `waiters leave a queue in any order, and the rest keep theirs`() {
        let seed = newSeed()
        var random = SeededGenerator(seed: seed)
        var queue = WaitQueue<Int>(), model: [(ticket: UInt64, waiter: Int)] = []
        for number in 0..<20_000 {
            let isGrowing = number % 4000 < 2000
            switch Int.random(in: 0..<10, using: &random) {
            case 0..<(isGrowing ? 6 : 3): model.append((queue.append(number), number))
            case 6..<8: #expect(queue.popFirst() == (model.isEmpty ? nil : model.removeFirst().waiter), "seed \(seed)")
            default:
                guard let index = model.indices.randomElement(using: &random) else { continue }
                let gone = model.remove(at: index)
                #expect(queue.remove(gone.ticket) == gone.waiter, "seed \(seed)")
                #expect(queue.remove(gone.ticket) == nil, "seed \(seed)")
            }
            #expect(queue.count == model.count, "seed \(seed)")
        }
    }
}
