public import Plimsoll

/// A type with one instance for each manager. Only an initializer of a protocol may return an instance that exists.
protocol JoinsManager {
    static func joined(to manager: ResourceManager) -> Self
}

extension JoinsManager {
    init(joining manager: ResourceManager) { self = Self.joined(to: manager) }
}

extension Lifecycle {
    /// Returns the life cycle of `manager`, the same at each call. Joins a new one to the manager on the first call.
    ///
    /// - Complexity: O(parts that have joined the manager).
    public convenience init(_ manager: ResourceManager) { self.init(joining: manager) }

    static func joined(to manager: ResourceManager) -> Lifecycle { manager.part { Lifecycle(of: manager) } }
}

extension ResourceManager {
    /// The life cycle of the process: `Lifecycle(self)`.
    public var lifecycle: Lifecycle { Lifecycle(self) }

    /// Revokes `tag`, as `Lifecycle.revokeCredentials(tag:)` does.
    @discardableResult
    public func revoke(tag: String) -> ScrubReport { lifecycle.revokeCredentials(tag: tag) }
}

/// The life cycle's side of the seam to the manager.
extension Lifecycle: ManagerPart {
    public func joined() { followGaps() }

    public func prepare() async { await launchIfNeeded() }

    public var canQuiesce: Bool { !pausables.isEmpty }

    public func admit(at level: PressureLevel, isQuiescing: Bool) {
        pausables.setPressure(level, isQuiescing: isQuiescing)
    }

    public func noticed(limit: ByteCount?) { environment.limit.noticed(limit, post: environment.post) }

    public func loopEnded() { environment.limit.ended() }

    public func finish(_ end: ManagerEnd) async -> [String] {
        if end.isForPressure { endingSaves.begin(end.waitForSaves) }
        let report = await terminate(cause: end.isForPressure ? .pressure : .shutdown, within: end.budget)
        // The manager names the background tasks itself.
        return report.overran.filter { $0.origin != "background task" }.map(\.name)
    }

    public var signals: [Capabilities.Signal] { environment.watch.signals + [ProcessPrivacy.signal] }

    public func describe(in status: inout ManagerStatus) {
        let readiness = readiness
        status.lifecycle = LifecycleStatus(
            state: "\(state)", stage: "\(readiness.stage)", isReady: readiness.isReady, reason: readiness.reason,
            warming: readiness.warming, scenes: scenes.count, previousRun: previousRun?.rawValue)
        status.admissions = pausables.countingMembers.map { AdmissionStatus($0) }
    }
}

extension Lifecycle {
    /// Announces that the host is about to sleep. Background tasks expire, and the process stays in the background
    /// until the host has woken (C11).
    ///
    /// For programs that learn of the sleep in advance, as from logind's `PrepareForSleep`. Without this call, the
    /// sleep is noticed afterwards, by `CLOCK_BOOTTIME`.
    ///
    /// - Throws: `LifecycleError` once the process has terminated.
    @discardableResult
    public func hostWillSleep() async throws -> LifecycleReport {
        async let expired: Void = expireTasks(.hostSleep)
        let report = try await reconcile(.hostSleep) { $0.isHostAsleep = true }
        await expired
        return report
    }

    /// Announces that the host has woken. The manager calls this method when it finds that the host slept; a second
    /// call does no harm.
    ///
    /// - Throws: `LifecycleError` once the process has terminated.
    @discardableResult
    public func hostDidWake() async throws -> LifecycleReport {
        try await reconcile(.hostSleep) { $0.isHostAsleep = false }
    }

    /// Expires all background tasks, also those of scenes, off the cooperative pool, within the background deadline.
    private func expireTasks(_ reason: ExpirationReason) async {
        let (tasks, budget) = (sceneTasks, policy.backgroundDeadline)
        await withCheckedContinuation { (done: CheckedContinuation<Void, Never>) in
            threads.run { () -> Void in
                _ = tasks.expireAllAndWait(reason, within: budget)
                done.resume()
            }
        }
    }
}
