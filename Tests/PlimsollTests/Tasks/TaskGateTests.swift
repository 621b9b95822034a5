import TestSupport
import Testing

@testable import Plimsoll

/// The permission to begin tasks, and the times of tasks.
@Suite struct TaskGateTests {
    private let allowance = Duration.seconds(30)

    @Test func `a unit is in one state at a time, and the first entry into the background counts`() {
        var gate = TaskGate()
        let early = gate.enterForeground()
        #expect(!early && gate.allowanceLeft(of: allowance, at: .seconds(5)) == nil)
        let enters = gate.enterBackground(at: .seconds(10)), again = gate.enterBackground(at: .seconds(20))
        #expect(enters && !again)
        for (now, left) in [(10, 30), (25, 15), (40, 0), (100, 0)] {
            #expect(gate.allowanceLeft(of: allowance, at: .seconds(now)) == .seconds(left), "\(now)")
        }
        gate.isSuspended = true
        gate.isSpent = true
        let leaves = gate.enterForeground(), twice = gate.enterForeground()
        #expect(leaves && !twice && gate.inBackgroundSince == nil && gate.refusal == nil)
    }

    @Test func `a freeze gives back as much of the spent allowance as the process was frozen`() {
        // Times in seconds: now, the length of the freeze, and the rest of the allowance if that has changed.
        let rows: [(now: Int, gap: Int, left: Int?)] = [
            (10, 5, nil), (20, 0, nil), (20, 4, 24), (20, 10, 30), (20, 3600, 30), (40, 1, 1), (100, 5, 5), (100, 40, 30),
        ]
        for row in rows {
            let now = Duration.seconds(row.now), gap = Duration.seconds(row.gap)
            var gate = TaskGate()
            _ = gate.enterBackground(at: .seconds(10))
            gate.isSpent = row.now >= 40
            let stay = gate.stay, left = row.left.map { Duration.seconds($0) }
            let given = gate.giveBack(gap, of: allowance, at: now)
            #expect(given == left, "\(row)")
            let rest = left ?? .seconds(40 - row.now)
            #expect(gate.allowanceLeft(of: allowance, at: now) == rest, "\(row)")
            #expect((gate.stay != stay) == (left != nil) && !gate.isSpent, "\(row)")
        }
        var foreground = TaskGate(), closed = TaskGate()
        _ = closed.enterBackground(at: .zero)
        closed.isClosed = true
        let first = foreground.giveBack(.seconds(5), of: allowance, at: .seconds(20))
        let second = closed.giveBack(.seconds(5), of: allowance, at: .seconds(20))
        #expect(first == nil && second == nil)
    }

    @Test func `the gravest reason refuses a task`() {
        struct Row {
            var isClosed = false, isSuspended = false, isSpent = false, isInBackground = false
            var sweep: ExpirationReason?
            var refusal: BackgroundTaskRefusal.Cause?
        }
        let rows = [
            Row(), Row(isInBackground: true), Row(isSpent: true, isInBackground: true, refusal: .allowanceSpent),
            Row(sweep: .allowance), Row(isInBackground: true, sweep: .allowance, refusal: .expiring),
            Row(sweep: .pressure, refusal: .expiring), Row(isInBackground: true, sweep: .pressure, refusal: .expiring),
            Row(isSuspended: true, isSpent: true, isInBackground: true, sweep: .pressure, refusal: .suspended),
            Row(isClosed: true, isSuspended: true, isInBackground: true, refusal: .shutdown),
        ]
        for row in rows {
            var gate = TaskGate()
            if row.isInBackground { _ = gate.enterBackground(at: .zero) }
            if let reason = row.sweep { _ = gate.sweep(reason, until: .seconds(5), done: nil) }
            (gate.isClosed, gate.isSuspended, gate.isSpent) = (row.isClosed, row.isSuspended, row.isSpent)
            #expect(gate.refusal == row.refusal, "\(row)")
        }
    }

    @Test func `a sweep that is joined keeps the earlier deadline, and any reason but the allowance`() {
        var gate = TaskGate()
        let asked = Counter()
        var isNew: [Bool] = []
        for (reason, deadline) in [(ExpirationReason.allowance, 30), (.pressure, 30), (.shutdown, 5), (.operator, 60)] {
            isNew.append(gate.sweep(reason, until: .seconds(deadline), done: { _ in asked.add(1) }))
        }
        #expect(isNew == [true, false, true, false])
        let (reason, deadline) = (gate.sweep?.reason, gate.sweep?.deadline)
        #expect(reason == .pressure && deadline == .seconds(5) && gate.sweep?.askers == 4)
        let number = gate.sweep?.number
        for done in gate.sweep?.waiting ?? [] { done([]) }
        #expect(asked.value == 4)
        gate.sweep = nil
        let isAnother = gate.sweep(.operator, until: .seconds(60), done: nil)
        #expect(isAnother && gate.sweep?.number != number && gate.sweep?.waiting.isEmpty == true)
    }
}
