public import Plimsoll

/// Something to be done to a unit.
public enum UnitAction: Sendable, Hashable {
    /// Tell it how short memory is.
    case warn(PressureLevel)
    /// Ask it to give back so much.
    case release(ByteCount)
    /// Tell it to go to the background: 5 s to become ready to stand still.
    case background
    /// Make it stand still.
    case suspend
    /// Let it run again.
    case resume(ResumeReason)
    /// Have the kernel take so much of it while it stands still.
    case pushOut(ByteCount)
    /// Less processor and disk, or as much as its role has.
    case throttle(Bool)
    case end(Ending)
    case start

    public enum ResumeReason: String, Sendable, Hashable { case room, keepAlive = "keep-alive", asked, ending }

    public enum Ending: Sendable, Hashable {
        /// At once, as it stands: its state is saved. SIGKILL reaches a frozen process, SIGTERM would wait for its thaw (K33).
        case killSuspended
        /// Let it run, ask it, and kill it when the time is over.
        case ask(grace: Duration)
        /// At once.
        case kill
    }
}

extension UnitAction {
    /// Actions without their amounts.
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

/// What is to be done to whom, and why.
public struct Decision: Sendable, Hashable {
    public var at: Duration
    public var unit: String
    public var action: UnitAction
    /// One sentence with the numbers that it was decided by.
    public var reason: String
    /// It is only told, not to be carried out.
    public var isDryRun: Bool

    public init(at: Duration, unit: String, action: UnitAction, reason: String, isDryRun: Bool = false) {
        (self.at, self.unit, self.action, self.reason, self.isDryRun) = (at, unit, action, reason, isDryRun)
    }
}

/// What came of it.
public struct Outcome: Sendable, Hashable {
    public var decision: Decision
    /// When it was done, or given up.
    public var at: Duration
    /// How much less is charged to the unit than when it was decided.
    public var relief: ByteCount
    /// What went wrong; `nil` if nothing.
    public var failure: String?

    public init(_ decision: Decision, at: Duration, relief: ByteCount, failure: String? = nil) {
        (self.decision, self.at, self.relief, self.failure) = (decision, at, relief, failure)
    }
}
