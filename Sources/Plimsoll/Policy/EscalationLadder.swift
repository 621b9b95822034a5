/// One step of a ladder: what to do at which level after how much patience.
public struct Rung: Sendable, Hashable {
    /// The level from which this rung counts.
    public var level: PressureLevel
    /// How long readings must have shown that level without a break.
    public var patience: Duration
    /// What to do.
    public var action: PressureAction

    /// `action` when readings have shown `level` or more for `patience`.
    public init(at level: PressureLevel, after patience: Duration = .zero, _ action: PressureAction) {
        self.level = level
        self.patience = patience
        self.action = action
    }
}

/// The order in which an application gives way: a table that can be read aloud.
///
/// Every rung is done once an episode, `release` for as long as it is needed.
public struct EscalationLadder: Sendable, Hashable {
    /// The rungs, from the mildest on; at most 64.
    public let rungs: [Rung]

    /// A ladder of these rungs.
    ///
    /// - Throws: `Mistake` if it descends, destroys without patience, starts at `normal`, ends the process below `critical`, or has more than 64 rungs.
    public init(_ rungs: [Rung]) throws(Mistake) {
        if rungs.count > 64 { throw Mistake(rung: 64, reason: "a ladder has at most 64 rungs") }
        for (index, rung) in rungs.enumerated() {
            if rung.level == .normal { throw Mistake(rung: index, reason: "\(rung.action) at level normal: normal is never pressure") }
            if rung.action.endingGrace != nil, rung.level < .critical {
                throw Mistake(rung: index, reason: "\(rung.action) at level \(rung.level): a process ends itself at critical only")
            }
            if rung.action.isUpkeep { throw Mistake(rung: index, reason: "\(rung.action): the manager does this by itself, at any level") }
            if rung.patience < .zero { throw Mistake(rung: index, reason: "\(rung.action) after \(rung.patience): patience cannot be negative") }
            if rung.action.isDestructive, rung.patience == .zero {
                throw Mistake(rung: index, reason: "\(rung.action) destroys work, so it needs patience (after:)")
            }
            guard index > 0 else { continue }
            let before = rungs[index - 1]
            if rung.level < before.level { throw Mistake(rung: index, reason: "level \(rung.level) below \(before.level): a ladder only climbs") }
            if rung.level == before.level, rung.patience < before.patience {
                throw Mistake(rung: index, reason: "\(rung.action) after \(rung.patience) comes below a rung with more patience, \(before.patience)")
            }
            if rung.level == before.level, rung.action.severity < before.action.severity {
                throw Mistake(rung: index, reason: "\(rung.action) comes after the harsher \(before.action)")
            }
        }
        self.rungs = rungs
    }

    /// warning: warn, release; critical: warn, release, quiesce, after 2 s expire background tasks, after 10 s suspend. It ends no process: see
    /// `terminating(after:grace:)`.
    public static let standard = EscalationLadder(trusted: [
        Rung(at: .warning, .warn),
        Rung(at: .warning, .release),
        Rung(at: .critical, .warn),
        Rung(at: .critical, .release),
        Rung(at: .critical, .quiesce),
        Rung(at: .critical, after: .seconds(2), .expireBackgroundTasks(grace: .seconds(5))),
        Rung(at: .critical, after: .seconds(10), .suspend),
    ])

    /// Nothing is done: for who only wants to know.
    public static let none = EscalationLadder(trusted: [])

    /// This ladder with one rung that ends the process, its last: in the place of any it has.
    ///
    /// Without such a rung a process never ends itself. The rung asks for the end; what has to be true besides is said at `PressureAction.terminate`.
    ///
    /// - Parameters:
    ///   - patience: how long readings must have been critical without a break; more than zero, as work is lost by it. It may be less than that of rungs before.
    ///   - grace: what saving may take; not negative.
    public func terminating(after patience: Duration, grace: Duration = .seconds(10)) -> EscalationLadder {
        precondition(patience > .zero, "a ladder that terminates after \(patience): ending the process destroys work, so it needs patience")
        precondition(grace >= .zero, "a ladder that terminates with a grace of \(grace): a grace cannot be negative")
        return EscalationLadder(trusted: unending.rungs + [Rung(at: .critical, after: patience, .terminate(grace: grace))])
    }

    /// This ladder without the rungs that end the process.
    var unending: EscalationLadder { EscalationLadder(trusted: rungs.filter { $0.action.endingGrace == nil }) }

    init(trusted rungs: [Rung]) { self.rungs = rungs }

    /// Why a ladder was refused.
    public struct Mistake: Error, Sendable, Hashable, CustomStringConvertible {
        /// Index of the rung at fault.
        public var rung: Int
        /// What is wrong with it.
        public var reason: String
        public var description: String { "rung \(rung): \(reason)" }
    }
}

/// Where on a ladder a process stands. A value; `climb` says what to do now.
struct LadderClimb: Sendable {
    let ladder: EscalationLadder
    /// Since when readings have shown a level without a break, by raw value.
    private var since: (warning: Duration?, critical: Duration?) = (nil, nil)
    private var done: UInt64 = 0

    init(_ ladder: EscalationLadder) { self.ladder = ladder }

    /// The rungs that fire for `assessment`. Allocates nothing.
    mutating func climb(_ assessment: PressureAssessment) -> FiredRungs {
        since.warning = assessment.observed >= .warning ? since.warning ?? assessment.at : nil
        since.critical = assessment.observed >= .critical ? since.critical ?? assessment.at : nil

        var fired: UInt64 = 0
        for index in ladder.rungs.indices {
            let rung = ladder.rungs[index], bit = UInt64(1) << UInt64(index)
            if assessment.level < rung.level { done &= ~bit }
            guard let start = rung.level == .critical ? since.critical : since.warning else { continue }
            guard assessment.at - start >= rung.patience else { continue }
            if rung.action.isStanding {
                fired |= bit
            } else if done & bit == 0 {
                done |= bit
                fired |= bit
            }
        }
        return FiredRungs(rungs: ladder.rungs, remaining: fired)
    }
}

/// The actions of the rungs that fired, in order. Iterating allocates nothing.
struct FiredRungs: Sequence, IteratorProtocol, Sendable {
    fileprivate let rungs: [Rung]
    fileprivate var remaining: UInt64

    mutating func next() -> PressureAction? {
        guard remaining != 0 else { return nil }
        let index = remaining.trailingZeroBitCount
        remaining &= remaining - 1
        return rungs[index].action
    }
}
