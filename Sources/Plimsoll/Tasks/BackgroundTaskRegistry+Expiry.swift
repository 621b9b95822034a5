import Synchronization

extension BackgroundTaskRegistry {
    /// Asks every running task to stop: all handlers in parallel, under one deadline (T6). Tasks that have not
    /// ended by then are given up.
    ///
    /// - Parameters:
    ///   - grace: by running time. If tasks are being asked already, the earlier deadline holds.
    ///   - done: receives the names of the tasks given up, on the thread that detects the end.
    ///   - condition: called within the lock; false for no sweep.
    /// - Returns: the number of tasks asked.
    @discardableResult
    func expire(
        _ reason: ExpirationReason, within grace: Duration, done: (@Sendable ([String]) -> Void)? = nil,
        if condition: (inout TaskGate) -> Bool = { _ in true }
    ) -> Int {
        let running = alarms.heartbeat.running
        let number: Int? = gate.withLock { gate in
            guard condition(&gate) else { return nil }
            let isNew = gate.sweep(reason, until: running + grace, done: done)
            applyGate(gate, expiring: true)
            guard let number = gate.sweep?.number else { return nil }
            // An alarm takes a thread, which is too much for no tasks. So a sweep that began without tasks has no
            // alarm yet.
            if isNew || gate.sweep?.alarm == nil, gate.offers > 0 || tally.count > 0 {
                let left = max(.zero, (gate.sweep?.deadline ?? running) - running)
                gate.sweep?.alarm?.cancel()
                gate.sweep?.alarm = alarms.set(.deadline, after: left) { [self] in _ = giveUp(number) }
            }
            return number
        }
        guard let number else { return 0 }
        var asked = 0
        for shard in shards {
            while case let some = shard.expireSome(), !some.isEmpty {
                asked += some.count
                threads.run(some.compactMap { Self.call(of: $0, $1, reason) })
            }
        }
        gate.withLock { if $0.sweep?.number == number { $0.sweep?.askers -= 1 } }
        finishIfDone()
        return asked
    }

    private static func call(
        of record: BackgroundTaskRecord, _ handler: BackgroundTaskRecord.Handler?, _ reason: ExpirationReason
    ) -> (@Sendable () -> Void)? {
        switch handler {
        case .blocking(let body):
            let task = BackgroundTask(record)
            // Work that ended on its own meanwhile has nothing left to save.
            return { if record.phase != .ended { body(task, reason) } }
        case .scope(let scope): return { scope.expire(reason) }
        case nil: return nil
        }
    }

    /// Completes the sweep or reports the unit as idle, after the last of some tasks has ended.
    func finishIfDone() {
        let (ended, isIdle, waiting) = gate.withLock { gate in
            let tally = tally
            var waiting: [@Sendable ([String]) -> Void] = []
            if let ownEnd = gate.ownEnd, tally.count == 0, gate.offers == 0 {
                waiting = ownEnd.waiting
                gate.ownEnd?.waiting = []
            }
            var ended: TaskGate.Sweep?
            if let sweep = gate.sweep, sweep.askers == 0, !sweep.isEnding, tally.expiring == 0, gate.offers == 0 {
                ended = sweep
                gate.sweep = nil
                applyGate(gate)
            }
            let isIdle =
                gate.inBackgroundSince != nil && tally.count == 0 && gate.offers == 0
                && gate.reportedIdleAt != tally.ended
            if isIdle { gate.reportedIdleAt = tally.ended }
            return (ended, isIdle, waiting)
        }
        for done in waiting { done([]) }
        if let ended { finish(ended, []) }
        if isIdle { notify(\.whenIdle) }
    }

    /// True if any task that was asked to stop still runs.
    var isExpiring: Bool { tally.expiring > 0 }

    /// Gives up all tasks that are still expiring, now.
    ///
    /// - Returns: the names of the tasks given up.
    func giveUpStragglers() -> [String] { giveUp(nil) }

    private func giveUp(_ number: Int?) -> [String] {
        let sweep: TaskGate.Sweep? = gate.withLock { gate in
            guard let sweep = gate.sweep, !sweep.isEnding, number == nil || sweep.number == number else { return nil }
            gate.sweep?.isEnding = true
            return sweep
        }
        guard let sweep else { return [] }
        var stragglers: [(record: BackgroundTaskRecord, handler: BackgroundTaskRecord.Handler?)] = []
        while true {
            for shard in shards {
                while case let some = shard.giveUpSome(), !some.isEmpty { stragglers += some }
            }
            let ended: (sweep: TaskGate.Sweep, offers: Int)? = gate.withLock { gate in
                // A caller that joined meanwhile has selected more tasks. The earlier deadline holds for them too,
                // and has passed. Tasks are selected under this lock, so none is missed.
                guard shards.allSatisfy({ !$0.isExpiring }) else { return nil }
                // Use the current sweep, not the initial copy: callers that joined meanwhile wait in the current
                // one.
                let ended = gate.sweep ?? sweep
                gate.sweep = nil
                applyGate(gate)
                return (ended, gate.offers)
            }
            guard let ended else { continue }
            return end(ended.sweep, stragglers, offers: ended.offers)
        }
    }

    private func end(
        _ sweep: TaskGate.Sweep, _ stragglers: [(record: BackgroundTaskRecord, handler: BackgroundTaskRecord.Handler?)],
        offers: Int
    ) -> [String] {
        let reason = sweep.reason
        // The deadline may pass before a selected task is reached. Such a task still has a handler, and is asked now. A
        // scope that was asked before ignores the second request. All of this runs application code.
        threads.run(
            stragglers.compactMap { record, handler -> (@Sendable () -> Void)? in
                guard case .scope(let scope) = handler else { return Self.call(of: record, handler, reason) }
                return {
                    scope.expire(reason)
                    scope.giveUp()
                }
            })
        var names = stragglers.map(\.record).sorted { $0.begun < $1.begun }.map(\.name)
        if offers > 0 { names.append("\(offers) handed over") }
        finish(sweep, names)
        finishIfDone()
        return names
    }

    private func finish(_ sweep: TaskGate.Sweep, _ names: [String]) {
        sweep.alarm?.cancel()
        // Before the waiting callers continue: the report of a shutdown contains these names.
        if !names.isEmpty { notifyGivenUp(sweep.reason, names) }
        for done in sweep.waiting { done(names) }
        notify(\.whenOpened)
    }

    // MARK: Waiting for the end

    /// Asks every running task to stop, blocks for at most `grace` until no task runs, and gives up the rest.
    ///
    /// - Parameters:
    ///   - isExtended: true to request more time while a task is alive: before the wait, and whenever half of that
    ///     time has passed.
    ///   - allowsOwnEnd: true to ask tasks only after their own time in the current shutdown is over
    ///     (`close(askingAfter:within:)`).
    /// - Returns: the names of the tasks given up.
    package func expireAndWait(
        _ reason: ExpirationReason, within grace: Duration, isExtended: Bool = false, allowsOwnEnd: Bool = false
    ) -> [String] {
        let heartbeat = alarms.heartbeat
        let parker = Parker(), outcome = Outcome(parker)
        let deadline = heartbeat.running + grace
        let extend = isExtended ? timeIsNeeded : nil

        /// Requests time, and returns the time of the next request.
        func ask(_ left: Duration) -> Duration? {
            guard let extend, left > .zero, hasLiveTasks else { return nil }
            extend(left)
            // Bounded below, because halving repeatedly approaches zero.
            let pause = max(left / 2, Self.leastPause)
            alarms.set(.deadline, after: pause) { parker.unpark() }
            return heartbeat.running + pause
        }

        var next = ask(grace)
        let waits = allowsOwnEnd && awaitOwnEnd(before: deadline) { outcome.set($0) }
        if !waits { expire(reason, within: grace) { outcome.set($0) } }
        // An alarm gives up the remaining tasks. If the alarm fails to come, this thread gives them up. If another
        // thread is giving them up, that thread sets the names soon, and calls no application code before. A freeze
        // counts no more than the pause during which the freeze occurred.
        var waited = Duration.zero, hasGivenUp = false
        while true {
            let isLate = waited > grace + Self.patience || heartbeat.running > deadline + Self.patience
            if waits, isLate || !hasLiveTasks { endOwnTime() }
            if isLate, !hasGivenUp, outcome.names == nil {
                hasGivenUp = true
                _ = giveUpStragglers()
            }
            if let names = outcome.names { return names }
            if let due = next, heartbeat.running >= due { next = ask(deadline - heartbeat.running) }
            waited += alarms.wait(on: parker, atMost: Self.leastPause)
        }
    }

    // MARK: Time to end without a request

    /// Refuses new tasks from now on. Running tasks may end on their own for `patience`. Then they are asked to
    /// stop, and given up `grace` after this call.
    func close(askingAfter patience: Duration, within grace: Duration) {
        let running = alarms.heartbeat.running
        gate.withLock { gate in
            guard !gate.isClosed else { return }
            gate.isClosed = true
            gate.ownEnd = TaskGate.OwnEnd(asksAt: running + patience, givesUpAt: running + grace)
            if patience > .zero {
                gate.ownEnd?.alarm = alarms.set(.deadline, after: patience) { [self] in endOwnTime() }
            }
            applyGate(gate)
        }
        if patience <= .zero { endOwnTime() }
    }

    /// Asks the running tasks to stop now, if a shutdown had left them time to end on their own.
    func endOwnTime() {
        let ended = gate.withLock { $0.ownEnd.take() }
        guard let ended else { return }
        ended.alarm?.cancel()
        let running = tally.count
        if running > 0 { notifyAsked(statuses(atMost: Self.mostNamed).map(\.name), running) }
        // For the waiting callers as well: one that joined by itself could come when the tasks are given up already.
        let waiting = ended.waiting
        expire(.shutdown, within: max(.zero, ended.givesUpAt - alarms.heartbeat.running)) { names in
            for done in waiting { done(names) }
        }
    }

    /// Registers `done` to be called when no task runs any more, with the names of the tasks given up. Tasks that are
    /// asked to stop are given up at `deadline` at the latest.
    ///
    /// - Returns: false if tasks have no time of their own, or none that ends before `deadline`.
    private func awaitOwnEnd(before deadline: Duration, _ done: @escaping @Sendable ([String]) -> Void) -> Bool {
        gate.withLock { gate in
            guard let ownEnd = gate.ownEnd, ownEnd.asksAt < deadline else { return false }
            gate.ownEnd?.waiting.append(done)
            gate.ownEnd?.givesUpAt = min(ownEnd.givesUpAt, deadline)
            return true
        }
    }

    /// Maximum number of names in a report that counts all tasks.
    private static var mostNamed: Int { 8 }

    /// Time to wait for a sweep after its grace.
    private static var patience: Duration { .seconds(1) }

    private static var leastPause: Duration { .milliseconds(500) }

    private final class Outcome: Sendable {
        private let value = Mutex<[String]?>(nil)
        private let parker: Parker

        init(_ parker: Parker) { self.parker = parker }

        var names: [String]? { value.withLock { $0 } }

        func set(_ names: [String]) {
            value.withLock { $0 = names }
            parker.unpark()
        }
    }

    // MARK: Transitions

    /// Moves the unit to the background and starts the allowance (C28). No effect if already there.
    package func enterBackground() {
        let running = alarms.heartbeat.running
        gate.withLock { gate in
            guard gate.enterBackground(at: running) else { return }
            gate.reportedIdleAt = tally.ended
            setAllowanceAlarm(&gate, after: limits.allowance)
            applyGate(gate)
        }
    }

    private func setAllowanceAlarm(_ gate: inout TaskGate, after left: Duration) {
        let stay = gate.stay
        gate.allowanceAlarm?.cancel()
        gate.allowanceAlarm = alarms.set(.deadline, after: left) { [self] in allowanceIsSpent(stay) }
    }

    /// Restores allowance after a freeze of length `gap`, if the unit is in the background (C33). Does not block,
    /// and calls only listeners that wait for a gap to end or for tasks to be allowed.
    package func gapEnded(_ gap: RunningGap) {
        let running = alarms.heartbeat.running
        let isRenewed = gate.withLock { gate in
            guard let left = gate.giveBack(gap.length, of: limits.allowance, at: running) else { return false }
            setAllowanceAlarm(&gate, after: left)
            applyGate(gate)
            return true
        }
        notify(\.whenGapEnded)
        if isRenewed { notify(\.whenOpened) }
    }

    private func allowanceIsSpent(_ stay: Int) {
        expire(
            .allowance, within: limits.grace,
            if: { gate in
                guard gate.inBackgroundSince != nil, gate.stay == stay else { return false }
                gate.isSpent = true
                return true
            })
    }

    /// Moves the unit to the foreground and restores the full allowance. Tasks may begin even while others overrun
    /// the allowance.
    package func enterForeground() {
        let isBack = gate.withLock { gate in
            guard gate.enterForeground() else { return false }
            gate.allowanceAlarm?.cancel()
            gate.allowanceAlarm = nil
            applyGate(gate)
            return true
        }
        if isBack { notify(\.whenOpened) }
    }

    /// Sets if the unit is suspended. No task may begin while suspended (T5).
    package func suspended(_ isSuspended: Bool) {
        gate.withLock { gate in
            gate.isSuspended = isSuspended
            applyGate(gate)
        }
        if !isSuspended { notify(\.whenOpened) }
    }

    /// Refuses new tasks from now on, permanently.
    package func close() {
        gate.withLock { gate in
            gate.isClosed = true
            applyGate(gate)
        }
    }

    var isInBackground: Bool { gate.withLock { $0.inBackgroundSince != nil } }

    /// True if the unit's state permits a task to begin now.
    package var mayBegin: Bool { gate.withLock { $0.refusal == nil } }

    /// Rest of the allowance; `nil` in the foreground.
    package var allowanceLeft: Duration? {
        let running = alarms.heartbeat.running
        return gate.withLock { $0.allowanceLeft(of: limits.allowance, at: running) }
    }
}
