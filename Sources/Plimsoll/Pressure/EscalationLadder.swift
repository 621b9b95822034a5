/// One step of a ladder: an action, a level and the patience.
public struct Rung: Sendable, Hashable {
    /// The lowest level at which this rung counts.
    public var level: PressureLevel
    /// Time for which readings must have shown that level without a break.
    public var patience: Duration
    /// The action to perform.
    public var action: PressureAction

    /// Creates a rung that performs `action` when readings have shown `level` or more for `patience`.
    public init(at level: PressureLevel, after patience: Duration = .zero, _ action: PressureAction) {
        self.level = level
        self.patience = patience
        self.action = action
    }
}

/// The order in which an application responds to pressure, as a readable table.
///
/// Every rung fires once an episode; `release`, `cancelLargestRequest` and `terminate` for as long as they are needed.
public struct EscalationLadder: Sendable, Hashable {
    /// The rungs, from the mildest on; at most 64.
    public let rungs: [Rung]

    /// Creates a ladder of these rungs.
    ///
    /// - Throws: `Mistake` if the ladder descends, destroys without patience, starts at `normal`, ends the process
    ///   below `critical`, or has more than 64 rungs.
    public init(_ rungs: [Rung]) throws(Mistake) {
        if rungs.count > 64 { throw Mistake(rung: 64, reason: "a ladder has at most 64 rungs") }
        for (index, rung) in rungs.enumerated() {
            if rung.level == .normal {
                throw Mistake(rung: index, reason: "\(rung.action) at level normal: the normal level is no pressure")
            }
            if rung.action.endingGrace != nil, rung.level < .critical {
                throw Mistake(
                    rung: index,
                    reason: "\(rung.action) at level \(rung.level): the process may terminate at critical only"
                )
            }
            if rung.action.isUpkeep {
                throw Mistake(rung: index, reason: "\(rung.action): the manager does this by itself, at any level")
            }
            if rung.patience < .zero {
                throw Mistake(rung: index, reason: "\(rung.action) after \(rung.patience): patience cannot be negative")
            }
            if rung.action.isDestructive, rung.patience == .zero {
                throw Mistake(rung: index, reason: "\(rung.action) destroys work, so it needs patience (after:)")
            }
            guard index > 0 else { continue }
            let before = rungs[index - 1]
            if rung.level < before.level {
                throw Mistake(
                    rung: index,
                    reason: "level \(rung.level) below \(before.level): levels must not fall from rung to rung")
            }
            if rung.level == before.level, rung.patience < before.patience {
                throw Mistake(
                    rung: index,
                    reason:
                        "\(rung.action) after \(rung.patience) comes after a rung with more patience, \(before.patience)"
                )
            }
            if rung.level == before.level, rung.action.severity < before.action.severity {
                throw Mistake(rung: index, reason: "\(rung.action) comes after the harsher \(before.action)")
            }
        }
        self.rungs = rungs
    }

    /// The standard ladder. At warning: warn, release. At critical: warn, release, quiesce, after 2 s expire background
    /// tasks, after 10 s suspend. Never ends the process: see `terminating(after:grace:)`.
    public static let standard = EscalationLadder(trusted: [
        Rung(at: .warning, .warn),
        Rung(at: .warning, .release),
        Rung(at: .critical, .warn),
        Rung(at: .critical, .release),
        Rung(at: .critical, .quiesce),
        Rung(at: .critical, after: .seconds(2), .expireBackgroundTasks(grace: .seconds(5))),
        Rung(at: .critical, after: .seconds(10), .suspend),
    ])

    /// An empty ladder, for applications that only want notice.
    public static let none = EscalationLadder(trusted: [])

    /// Returns this ladder with one last rung that ends the process, in place of any such rungs before.
    ///
    /// Without such a rung a process never ends itself. The rung only requests the end; see `PressureAction.terminate`
    /// for the other conditions.
    ///
    /// - Parameters:
    ///   - patience: time for which readings must have been critical without a break; more than zero, because work is
    ///     lost. May be less than that of earlier rungs.
    ///   - grace: time limit for saving; not negative.
    public func terminating(after patience: Duration, grace: Duration = .seconds(10)) -> EscalationLadder {
        precondition(
            patience > .zero,
            "a ladder that terminates after \(patience): ending the process destroys work, so it needs patience")
        precondition(grace >= .zero, "a ladder that terminates with a grace of \(grace): a grace cannot be negative")
        return EscalationLadder(
            trusted: unending.rungs + [Rung(at: .critical, after: patience, .terminate(grace: grace))])
    }

    /// Returns this ladder with a rung that cancels the request that holds most memory, before work is shed or expired
    /// at `critical`. Takes the place of such rungs before.
    ///
    /// - Parameter least: bytes above which a request can be cancelled. Less than a few requests of ordinary size is
    ///   of no use.
    public func cancellingLargestRequest(above least: ByteCount) -> EscalationLadder {
        let new = Rung(at: .critical, .cancelLargestRequest(above: least))
        var rungs = cancellingNoRequest.rungs
        let place = rungs.firstIndex {
            $0.level == .critical && ($0.patience > .zero || $0.action.severity > new.action.severity)
        }
        rungs.insert(new, at: place ?? rungs.count)
        return EscalationLadder(trusted: rungs)
    }

    /// This ladder without the rungs that cancel requests.
    package var cancellingNoRequest: EscalationLadder {
        EscalationLadder(trusted: rungs.filter { if case .cancelLargestRequest = $0.action { false } else { true } })
    }

    /// The patience and the grace of the first rung that ends the process; `nil` without such a rung.
    package var ending: (after: Duration, grace: Duration)? {
        for rung in rungs { if let grace = rung.action.endingGrace { return (rung.patience, grace) } }
        return nil
    }

    /// This ladder without the rungs that end the process.
    package var unending: EscalationLadder { EscalationLadder(trusted: rungs.filter { $0.action.endingGrace == nil }) }

    init(trusted rungs: [Rung]) { self.rungs = rungs }

    /// The reason why a ladder was refused.
    public struct Mistake: Error, Sendable, Hashable, CustomStringConvertible {
        /// Index of the rung at fault.
        public var rung: Int
        /// Description of the mistake.
        public var reason: String
        public var description: String { "rung \(rung): \(reason)" }
    }
}

/// The position of a process on a ladder. A value; `climb` returns the rungs to fire now.
struct LadderClimb: Sendable {
    /// One shortage so far.
    private struct Episode {
        /// Time since which readings have shown each level without a break.
        var since: (warning: Duration?, critical: Duration?) = (nil, nil)
        /// The rungs that have fired, one bit each.
        var done: UInt64 = 0

        mutating func note(_ level: PressureLevel, observed: PressureLevel, at time: Duration, _ rungs: [Rung]) {
            since.warning = observed >= .warning ? since.warning ?? time : nil
            since.critical = observed >= .critical ? since.critical ?? time : nil
            for index in rungs.indices where level < rungs[index].level { done &= ~(UInt64(1) << UInt64(index)) }
        }
    }

    let ladder: EscalationLadder
    private var episode = Episode()
    /// The episode by readings alone.
    private var measured = Episode()
    private var wasSimulated = false
    /// Time of the last assessment.
    private var last: Duration?

    init(_ ladder: EscalationLadder) { self.ladder = ladder }

    /// Time since which readings have been critical without a break; `nil` while they are not.
    var criticalSince: Duration? { episode.since.critical }

    /// Returns the rungs that fire for `assessment`. Allocates nothing.
    mutating func climb(_ assessment: PressureAssessment) -> FiredRungs {
        // No reading has shown a level in a freeze, so that none of that time is patience (T30).
        if let last, assessment.at - last > PressureAssessor.longestGap || assessment.at < last {
            episode.since = (nil, nil)
            measured.since = (nil, nil)
        }
        last = assessment.at
        let isSimulated = assessment.evidence.contains(.simulated)
        // A shortage after a simulation is another episode: no time of the simulation is patience, no rung is done. One
        // that was there all along goes on.
        if wasSimulated, !isSimulated { episode = measured }
        wasSimulated = isSimulated
        episode.note(assessment.level, observed: assessment.observed, at: assessment.at, ladder.rungs)

        var fired: UInt64 = 0
        for index in ladder.rungs.indices {
            let rung = ladder.rungs[index], bit = UInt64(1) << UInt64(index)
            let since = rung.level == .critical ? episode.since.critical : episode.since.warning
            guard let start = since else { continue }
            guard assessment.at - start >= rung.patience else { continue }
            if rung.action.isLevelTriggered {
                fired |= bit
            } else if episode.done & bit == 0 {
                episode.done |= bit
                fired |= bit
            }
        }
        if isSimulated {
            let level = assessment.measured?.level ?? .normal, observed = assessment.measured?.observed ?? .normal
            measured.note(level, observed: observed, at: assessment.at, ladder.rungs)
        } else {
            measured = episode
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
