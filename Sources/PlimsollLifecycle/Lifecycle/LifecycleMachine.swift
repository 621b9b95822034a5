/// The legal states of a unit, and its current state. A value; the owner carries out the steps.
///
///     notRunning → inactive ⇄ active
///     notRunning → background            a launch without a foreground (C16)
///                  inactive ⇄ background ⇄ suspended
///     inactive, background, suspended → notRunning
struct LifecycleMachine: Sendable, Hashable {
    private(set) var state = LifecycleState.notRunning
    private(set) var sequence: UInt64 = 0

    /// Returns true if the step is one of those above (C1).
    static func isLegal(_ from: LifecycleState, _ to: LifecycleState) -> Bool {
        switch (from, to) {
        case (.notRunning, .inactive), (.notRunning, .background): true
        case (.inactive, .active), (.active, .inactive): true
        case (.inactive, .background), (.background, .inactive): true
        case (.background, .suspended), (.suspended, .background): true
        // An interruption may end in termination without passing through the background (C12).
        case (.inactive, .notRunning), (.background, .notRunning), (.suspended, .notRunning): true
        default: false
        }
    }

    /// Returns the next step on the way from `from` to `target`; `nil` if both are the same.
    static func step(from: LifecycleState, toward target: LifecycleState) -> LifecycleState? {
        if from == target { return nil }
        if isLegal(from, target) { return target }
        switch from {
        case .notRunning: return target == .suspended ? .background : .inactive
        case .active: return .inactive
        case .inactive: return .background
        case .background: return .inactive
        case .suspended: return .background
        }
    }

    /// Takes a step.
    ///
    /// - Throws: `LifecycleError` if the step is not legal; the machine is unchanged then.
    mutating func take(_ to: LifecycleState, cause: LifecycleCause, at now: Duration) throws(LifecycleError)
        -> LifecycleTransition
    {
        guard Self.isLegal(state, to) else {
            throw LifecycleError(
                "cannot go from \(state) to \(to) (\(cause.rawValue)) because the states are not adjacent; pass through the states between"
            )
        }
        sequence += 1
        defer { state = to }
        return LifecycleTransition(from: state, to: to, cause: cause, sequence: sequence, at: now)
    }
}

/// The desired state of the process and of each scene. A value.
struct DesiredState: Sendable, Hashable {
    /// The state that a scene, or a hold, requests for the process.
    struct Claim: Sendable, Hashable {
        var state: LifecycleState
        /// The state of the scene; during a step, the higher one of both states.
        var footing = LifecycleState.notRunning
        var isScene: Bool
    }

    /// True if an operator, or any other caller, has put the process into the background.
    var isInBackground = false
    /// True if the host sleeps, or is about to.
    var isHostAsleep = false
    /// Number of interruptions that have not ended.
    var interruptions = 0
    /// True if the end of an interruption waits for `Lifecycle.resume()` (C25).
    var awaitsResume = false
    var isTerminating = false
    /// The claims by the id of each scene and hold.
    var claims: [UInt64: Claim] = [:]
    /// True once there was a scene. After that, a process without scenes is in the background. Before that, the
    /// process itself acts as a scene (C98).
    var hasHadScenes = false

    /// The highest state that any scene may have.
    var ceiling: LifecycleState {
        if isTerminating { return .notRunning }
        if isInBackground || isHostAsleep { return .background }
        return interruptions > 0 || awaitsResume ? .inactive : .active
    }

    /// The desired state of the process: the greatest claim of its scenes and holds, below the ceiling (C94).
    var process: LifecycleState {
        if isTerminating { return .notRunning }
        var greatest = hasHadScenes ? LifecycleState.background : .active
        if hasHadScenes { for claim in claims.values { greatest = max(greatest, claim.state) } }
        return min(greatest, ceiling)
    }

    /// Returns the state that a process at `here` may enter now: the desired state, but not below a scene that is still
    /// on the way down.
    func upheld(at here: LifecycleState) -> LifecycleState {
        claims.values.reduce(process) { max($0, min($1.footing, here)) }
    }

    /// Returns the desired state of a scene that requests `state`.
    func scene(_ state: LifecycleState) -> LifecycleState { min(state, ceiling) }
}
