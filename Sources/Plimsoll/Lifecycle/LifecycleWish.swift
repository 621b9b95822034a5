/// Where the process, and each scene of it, is meant to be. A value.
struct LifecycleWish: Sendable, Hashable {
    /// What one of the process's scenes, or a hold, wants.
    struct Claim: Sendable, Hashable {
        var state: LifecycleState
        var isScene: Bool
    }

    /// Whether an operator, or whoever else, has put the process into the background.
    var isInBackground = false
    /// Whether the host sleeps, or is about to.
    var isHostAsleep = false
    /// Interruptions that have not ended.
    var interruptions = 0
    /// Whether the end of an interruption waits for a word (C25).
    var awaitsResume = false
    var isTerminating = false
    /// By an id of each scene and hold.
    var claims: [UInt64: Claim] = [:]
    /// Once there was a scene, a process without one has nothing in front (C98: before that it is one itself).
    var hasHadScenes = false

    /// What no scene may go beyond.
    var ceiling: LifecycleState {
        if isTerminating { return .notRunning }
        if isInBackground || isHostAsleep { return .background }
        return interruptions > 0 || awaitsResume ? .inactive : .active
    }

    /// Where the process is meant to be: the greatest of its scenes and holds, below the ceiling (C94).
    var process: LifecycleState {
        if isTerminating { return .notRunning }
        var greatest = hasHadScenes ? LifecycleState.background : .active
        if hasHadScenes { for claim in claims.values { greatest = max(greatest, claim.state) } }
        return min(greatest, ceiling)
    }

    /// Where a scene is meant to be that wants to be in `state`.
    func scene(_ state: LifecycleState) -> LifecycleState { min(state, ceiling) }
}
