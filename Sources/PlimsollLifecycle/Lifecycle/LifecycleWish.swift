/// The desired state of the process and of each scene. A value.
struct LifecycleWish: Sendable, Hashable {
    /// The state that a scene, or a hold, requests for the process.
    struct Claim: Sendable, Hashable {
        var state: LifecycleState
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

    /// Returns the desired state of a scene that requests `state`.
    func scene(_ state: LifecycleState) -> LifecycleState { min(state, ceiling) }
}
