public import Plimsoll

/// An action on a unit.
public enum UnitAction: Sendable, Hashable {
    /// Notify the unit of the pressure level.
    case warn(PressureLevel)
    /// Ask the unit to release this many bytes.
    case release(ByteCount)
    /// Tell the unit to go to the background. The unit then has 5 s to become ready to be frozen.
    case background
    /// Freeze the unit.
    case suspend
    /// Thaw the unit.
    case resume(ResumeReason)
    /// Reclaim this many bytes from the frozen unit through the kernel.
    case pushOut(ByteCount)
    /// Throttle the unit's processor and disk use (`true`), or restore the shares of its role (`false`).
    case throttle(Bool)
    case end(Ending)
    case start

    public enum ResumeReason: String, Sendable, Hashable { case room, keepAlive = "keep-alive", asked, ending }

    public enum Ending: Sendable, Hashable {
        /// Kill the frozen unit at once; its state is saved. SIGKILL reaches a frozen process, SIGTERM would wait for
        /// the thaw (K33).
        case killSuspended
        /// Thaw the unit, ask the unit to end, and kill when the grace time is over.
        case ask(grace: Duration)
        /// Kill at once.
        case kill
    }
}

extension UnitAction {
    /// The kinds of action, without amounts.
    public enum Kind: String, Sendable, Hashable, CaseIterable {
        case warn, release, background, suspend, resume, pushOut = "push-out", throttle, end, start
    }

    public var kind: Kind {
        switch self {
        case .warn: .warn
        case .release: .release
        case .background: .background
        case .suspend: .suspend
        case .resume: .resume
        case .pushOut: .pushOut
        case .throttle: .throttle
        case .end: .end
        case .start: .start
        }
    }
}

/// An action to be carried out on a unit, and the reason.
public struct Decision: Sendable, Hashable {
    public var at: Duration
    public var unit: String
    public var action: UnitAction
    /// One sentence with the figures behind the decision.
    public var reason: String
    /// True if the decision is only reported and not carried out.
    public var isDryRun: Bool

    public init(at: Duration, unit: String, action: UnitAction, reason: String, isDryRun: Bool = false) {
        (self.at, self.unit, self.action, self.reason, self.isDryRun) = (at, unit, action, reason, isDryRun)
    }
}

/// The result of a decision.
public struct Outcome: Sendable, Hashable {
    public var decision: Decision
    /// Time at which the action was completed or abandoned.
    public var at: Duration
    /// Decrease of the unit's charge since the decision.
    public var relief: ByteCount
    /// Description of the failure; `nil` on success.
    public var failure: String?

    public init(_ decision: Decision, at: Duration, relief: ByteCount, failure: String? = nil) {
        (self.decision, self.at, self.relief, self.failure) = (decision, at, relief, failure)
    }
}
