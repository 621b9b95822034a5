#if canImport(Glibc) && !PLIMSOLL_INERT
import Plimsoll
import PlimsollLifecycle
import Synchronization

/// Carries out the supervisor's orders, and collects the messages to send. Nothing here waits: long operations run on
/// the manager's threads.
final class LinkOrders: Sendable {
    private struct State {
        /// Bytes requested while a release was running.
        var wanted: ByteCount?
        var isReleasing = false
        /// True if the supervisor's last order was to go to the background, false if that order was to come back. The
        /// orders run on several threads, and those that wait for the launch run in any order afterwards.
        var wantsBackground = false
        /// Result of the last checkpoint, until the next step of the life cycle.
        var checkpoint: Bool?
        /// True if the supervisor waits for that result.
        var isAwaited = false
        /// True if background tasks were alive after the last save, and may have changed the data to save.
        var hasWorked = false
        var isSavingAgain = false
        /// Number of background tasks ended at the last check. Detects short tasks that come and go between two checks.
        var ended: UInt64 = 0
        /// Counts the checks that found work going on.
        var work: UInt64 = 0
    }

    private let manager: ResourceManager
    private let onEnding: (@Sendable (Duration) -> Void)?
    private let state = Mutex(State())

    init(_ manager: ResourceManager, onEnding: (@Sendable (Duration) -> Void)?) {
        self.manager = manager
        self.onEnding = onEnding
    }

    /// Carries out `message`.
    ///
    /// - Parameter done: called when a long operation is done and there is a message to send.
    func obey(_ message: SupervisorMessage, done: @escaping @Sendable () -> Void) {
        let lifecycle = manager.lifecycle
        switch message {
        case .level(let level): announce(level)
        case .release(let bytes): release(bytes, done)
        case .share(let share): manager.setProcessShare(share)
        // A terminated service throws here; there is nothing left to do.
        case .background(let deadline):
            state.withLock { $0.wantsBackground = true }
            lifecycle.runAside { [self] in
                _ = try? await lifecycle.enterBackground(
                    cause: .supervisor, within: deadline, isCurrent: { self.state.withLock { $0.wantsBackground } })
                done()
            }
        case .resume:
            state.withLock { $0.wantsBackground = false }
            lifecycle.runAside { [self] in
                _ = try? await lifecycle.enterForeground(
                    cause: .supervisor, isCurrent: { self.state.withLock { !$0.wantsBackground } })
                done()
            }
        case .checkpoint:
            lifecycle.runAside { [self] in
                let failures = await lifecycle.checkpoint(within: lifecycle.policy.backgroundDeadline)
                state.withLock { ($0.checkpoint, $0.isAwaited) = (failures.isEmpty, true) }
                done()
            }
        case .ending(let grace):
            if let onEnding { return lifecycle.runAside { onEnding(grace) } }
            // The process is killed at the end of `grace`, so the last save must not begin only then.
            let budget = grace - ResourceManager.shutdownReserve(of: grace)
            lifecycle.runAside {
                await lifecycle.terminate(cause: .supervisor, within: budget)
                done()
            }
        case .keepAlive, .refused: break
        }
    }

    /// Ends what holds only while the supervisor is there: the share, and an order to go to the background. The next
    /// supervisor does not know of that order, and would never call the process back.
    func lostSupervisor() {
        manager.setProcessShare(nil)
        if state.withLock({ $0.wantsBackground }) { obey(.resume, done: {}) }
    }

    private func announce(_ level: PressureLevel) {
        if let source = manager.source as? LinuxPressureSource { return source.announce(level) }
        // This source takes no announcements. Five seconds is the shortest time that a level lasts.
        guard level > .normal else { return }
        manager.simulate(level, for: .seconds(5))
    }

    /// Releases memory, one release at a time. Of requests that come meanwhile the largest counts.
    private func release(_ bytes: ByteCount, _ done: @escaping @Sendable () -> Void) {
        let begins = state.withLock { state in
            state.wanted = max(state.wanted ?? .zero, bytes)
            return !exchange(&state.isReleasing, true)
        }
        guard begins else { return }
        manager.lifecycle.runAside { [self] in
            while let wanted = nextRelease() { _ = await manager.release(wanted.bytes) }
            done()
        }
    }

    private func nextRelease() -> ByteCount? {
        state.withLock { state in
            defer { state.wanted = nil }
            state.isReleasing = state.wanted != nil
            return state.wanted
        }
    }

    // MARK: Messages to send

    /// The messages to send, and the actions that follow.
    struct Snapshot {
        var messages: [ChildMessage]
        /// True if the supervisor waits for `saved`.
        var isSavedAwaited: Bool
        /// True if `saveAgain` must be called.
        var needsSave: Bool
    }

    /// Returns the number of background tasks alive, including those of scenes, and the longest time any of them may
    /// continue; `nil` if there is no limit.
    private func work() -> (tasks: Int, until: Duration?) {
        var tasks = manager.runningTasks, until = manager.backgroundTimeRemaining
        var isLimited = tasks == 0 || until != nil
        for scene in manager.lifecycle.scenes {
            let count = scene.runningTasks, left = scene.backgroundTimeRemaining
            guard count > 0 else { continue }
            until = tasks == 0 ? left : max(until ?? .zero, left ?? .zero)
            tasks += count
            isLimited = isLimited && left != nil
        }
        return (tasks, isLimited ? until : nil)
    }

    /// Returns all messages for the present state. The state comes last, so that the supervisor already has the facts
    /// for the state.
    func read() -> Snapshot {
        let lifecycle = manager.lifecycle
        // Before the tasks are counted: one that is not counted is told to the link as it begins.
        manager.workNotice.arm(true)
        let (tasks, until) = work(), ended = manager.endedTasks
        let current = lifecycle.state
        let isInBackground = current == .background || current == .notRunning && !lifecycle.reports.isEmpty
        let arrival = isInBackground ? lifecycle.arrival : nil
        let seen = state.withLock { state in
            // In the foreground work goes on, so a save is valid only for the answer to the supervisor's order. On the
            // way there it is not valid at all: the message sent then must hold until the next one.
            let seen = state
            if arrival == nil { state.checkpoint = nil }
            let isValid = arrival != nil || seen.isAwaited && !isInBackground
            let hasWorked = tasks > 0 || ended != state.ended
            // On the way to the background the number stays as before: a task that ends there may end after the save.
            if arrival != nil || !isInBackground { state.ended = ended }
            state.hasWorked = arrival != nil && (hasWorked || state.hasWorked)
            if arrival == nil || hasWorked { state.work &+= 1 }
            let needsSave = state.hasWorked && tasks == 0 && !state.isSavingAgain
            if needsSave { state.isSavingAgain = true }
            state.isAwaited = false
            return (
                checkpoint: isValid ? seen.checkpoint : nil, isAwaited: seen.isAwaited, hasWorked: state.hasWorked,
                needsSave: needsSave
            )
        }
        let isSaved = !seen.hasWorked && (seen.checkpoint ?? arrival ?? false)
        if !isSaved { manager.workNotice.arm(false) }
        let worth = manager.worthOffer.map { [ChildMessage.worth($0)] } ?? []
        let messages: [ChildMessage] =
            worth + [
                .tasks(tasks, until: until),
                .caches(
                    held: ByteCount(manager.heldBytes()),
                    reclaimable: ByteCount(manager.heldBytes(in: .all.upTo(.expensive)))),
                .saved(isSaved),
                .locks(!lifecycle.exclusive.held.isEmpty),
                .state(
                    !isInBackground ? .foreground : arrival == nil || seen.hasWorked ? .background : .suspendedReady),
            ]
        return Snapshot(messages: messages, isSavedAwaited: seen.isAwaited, needsSave: seen.needsSave)
    }

    /// Saves the results of background tasks after they have ended. Until then the service reports neither `saved` nor
    /// `suspendedReady`.
    func saveAgain(done: @escaping @Sendable () -> Void) {
        let lifecycle = manager.lifecycle, work = state.withLock { $0.work }
        lifecycle.runAside { [self] in
            let failures = await lifecycle.checkpoint(within: lifecycle.policy.backgroundDeadline)
            state.withLock { state in
                state.isSavingAgain = false
                // Otherwise new tasks have begun meanwhile, and another save follows after them.
                if state.work == work { (state.hasWorked, state.checkpoint) = (false, failures.isEmpty) }
            }
            done()
        }
    }
}

/// The messages last sent to the supervisor, to find out which ones are new. A value type.
struct LinkStateDiff: Sendable {
    private var sent: [ChildMessage.Kind: ChildMessage] = [:]
    /// End of the background tasks' time, as last sent; `nil` if there is no limit.
    private var tasksEnd: Duration?

    /// Smallest change of a cache size that is sent: a sixteenth, and at least a mebibyte.
    private static let leastChange = ByteCount.mebibytes(1)
    /// Smallest change of the end of the tasks' time that is sent.
    private static let leastShift = Duration.seconds(1)

    /// Returns true if `message` is new to the supervisor.
    func isChange(_ message: ChildMessage, at now: Duration) -> Bool {
        guard let last = sent[message.kind] else { return true }
        switch (last, message) {
        // The remaining time runs by itself. Only another end counts as a change: the time begins anew after a wake,
        // and the tasks of two scenes may end at different times.
        case (.tasks(let before, _), .tasks(let count, let until)):
            guard before == count, (until == nil) == (tasksEnd == nil) else { return true }
            guard count > 0, let until, let end = tasksEnd else { return false }
            // Time that is over stays over.
            let shift = now + until - max(end, now)
            return shift > Self.leastShift || shift < Duration.zero - Self.leastShift
        case (.caches(let before, let beforeLess), .caches(let now, let nowLess)):
            return Self.differ(before, now) || Self.differ(beforeLess, nowLess)
        default: return last != message
        }
    }

    mutating func wasSent(_ message: ChildMessage, at now: Duration) {
        sent[message.kind] = message
        if case .tasks(_, let until) = message { tasksEnd = until.map { now + $0 } }
    }

    /// Forces `saved` to be sent again, even if unchanged, because the supervisor waits for an answer.
    mutating func forgetSaved() { sent[.saved] = nil }

    private static func differ(_ before: ByteCount, _ now: ByteCount) -> Bool {
        if (before == .zero) != (now == .zero) { return true }
        return max(before, now) - min(before, now) >= max(leastChange, before * (1.0 / 16))
    }
}
#endif
