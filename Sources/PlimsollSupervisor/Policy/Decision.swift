package import Plimsoll

/// An action on a unit.
package enum UnitAction: Sendable, Hashable {
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

    package enum ResumeReason: String, Sendable, Hashable { case room, keepAlive = "keep-alive", asked, ending }

    package enum Ending: Sendable, Hashable {
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
    package enum Kind: String, Sendable, Hashable, CaseIterable {
        case warn, release, background, suspend, resume, pushOut = "push-out", throttle, end, start
    }

    package var kind: Kind {
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
package struct Decision: Sendable, Hashable {
    package var at: Duration
    package var unit: String
    package var action: UnitAction
    /// One sentence with the figures behind the decision.
    package var reason: String
    /// True if the decision is only reported and not carried out.
    package var isDryRun: Bool

    package init(at: Duration, unit: String, action: UnitAction, reason: String, isDryRun: Bool = false) {
        (self.at, self.unit, self.action, self.reason, self.isDryRun) = (at, unit, action, reason, isDryRun)
    }
}

/// The result of a decision.
package struct Outcome: Sendable, Hashable {
    package var decision: Decision
    /// Time at which the action was completed or abandoned.
    package var at: Duration
    /// Decrease of the unit's charge since the decision.
    package var relief: ByteCount
    /// Description of the failure; `nil` on success.
    package var failure: String?

    package init(_ decision: Decision, at: Duration, relief: ByteCount, failure: String? = nil) {
        (self.decision, self.at, self.relief, self.failure) = (decision, at, relief, failure)
    }
}
