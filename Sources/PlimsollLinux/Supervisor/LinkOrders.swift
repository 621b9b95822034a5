import Plimsoll
import Synchronization

/// Does what a supervisor asks of a service, and sees what there is to tell. Nothing here waits: what takes time runs on the manager's threads.
final class LinkOrders: Sendable {
    private struct State {
        /// Bytes asked for while a release was under way.
        var wanted: ByteCount?
        var isReleasing = false
        /// What came of the last checkpoint, until the next step of the life cycle.
        var checkpoint: Bool?
        /// Whether somebody waits to hear that.
        var isAwaited = false
        /// Background tasks were alive after the last save, and may have changed what is to be saved.
        var hasWorked = false
        var isSavingAgain = false
        /// How many background tasks had ended at the last look: short ones come and go between two.
        var ended: UInt64 = 0
        /// Grows with each look that sees that work went on.
        var work: UInt64 = 0
    }

    private let manager: ResourceManager
    private let onEnding: (@Sendable (Duration) -> Void)?
    private let state = Mutex(State())

    init(_ manager: ResourceManager, onEnding: (@Sendable (Duration) -> Void)?) {
        self.manager = manager
        self.onEnding = onEnding
    }

    /// - Parameter done: called when something that takes time is done: there is something to tell.
    func obey(_ message: SupervisorMessage, done: @escaping @Sendable () -> Void) {
        let lifecycle = manager.lifecycle
        switch message {
        case .level(let level): announce(level)
        case .release(let bytes): release(bytes, done)
        // A service that has terminated throws here: it is beyond that.
        case .background(let deadline):
            lifecycle.runAside {
                _ = try? await lifecycle.enterBackground(cause: .supervisor, within: deadline)
                done()
            }
        case .resume:
            lifecycle.runAside {
                _ = try? await lifecycle.enterForeground(cause: .supervisor)
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
            lifecycle.runAside {
                await lifecycle.terminate(cause: .supervisor, within: grace)
                done()
            }
        case .keepAlive, .refused: break
        }
    }

    private func announce(_ level: PressureLevel) {
        if let source = manager.source as? LinuxPressureSource { return source.announce(level) }
        // A source that nothing can be announced to. Five seconds are what a level lasts at least.
        guard level > .normal else { return }
        manager.simulate(level, for: .seconds(5))
    }

    /// One release at a time; of those asked for meanwhile the largest.
    private func release(_ bytes: ByteCount, _ done: @escaping @Sendable () -> Void) {
        let begins = state.withLock { state in
            state.wanted = max(state.wanted ?? .zero, bytes)
            defer { state.isReleasing = true }
            return !state.isReleasing
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

    // MARK: Seeing

    /// What there is to tell, and what to do about it.
    struct Sight {
        var messages: [ChildMessage]
        /// Somebody waits to hear whether it is saved.
        var isSavedAwaited: Bool
        /// `saveAgain` is to be called.
        var needsSave: Bool
    }

    /// The background tasks alive, those of scenes included, and for how long the last of them may go on; `nil` where nothing limits it.
    private func work() -> (tasks: Int, until: Duration?) {
        var tasks = manager.backgroundTasks.count, until = manager.backgroundTimeRemaining
        var isLimited = tasks == 0 || until != nil
        for scene in manager.lifecycle.scenes {
            let count = scene.backgroundTasks.count, left = scene.backgroundTimeRemaining
            guard count > 0 else { continue }
            until = tasks == 0 ? left : max(until ?? .zero, left ?? .zero)
            tasks += count
            isLimited = isLimited && left != nil
        }
        return (tasks, isLimited ? until : nil)
    }

    /// All there is to tell now, the state last: what it means is known then.
    func look() -> Sight {
        let lifecycle = manager.lifecycle
        let (tasks, until) = work(), ended = manager.endedTasks
        let current = lifecycle.state
        let isInBackground = current == .background || current == .notRunning && !lifecycle.reports.isEmpty
        let arrival = isInBackground ? lifecycle.arrival : nil
        let seen = state.withLock { state in
            // In the foreground and on the way there work goes on, and what is saved is so for a moment.
            let seen = state
            if arrival == nil { state.checkpoint = nil }
            let hasWorked = tasks > 0 || ended != state.ended
            state.ended = ended
            state.hasWorked = arrival != nil && (hasWorked || state.hasWorked)
            if arrival == nil || hasWorked { state.work &+= 1 }
            let needsSave = state.hasWorked && tasks == 0 && !state.isSavingAgain
            if needsSave { state.isSavingAgain = true }
            state.isAwaited = false
            return (checkpoint: seen.checkpoint, isAwaited: seen.isAwaited, hasWorked: state.hasWorked, needsSave: needsSave)
        }
        let messages: [ChildMessage] = [
            .tasks(tasks, until: until),
            .caches(
                held: ByteCount(manager.heldBytes()), reclaimable: ByteCount(manager.heldBytes(in: .all.upTo(.expensive)))),
            .saved(!seen.hasWorked && (seen.checkpoint ?? arrival ?? false)), .locks(!lifecycle.exclusive.held.isEmpty),
            .state(!isInBackground ? .foreground : arrival == nil || seen.hasWorked ? .background : .suspendedReady),
        ]
        return Sight(messages: messages, isSavedAwaited: seen.isAwaited, needsSave: seen.needsSave)
    }

    /// Saves what background tasks have left, now that they have ended; until then it is neither saved nor ready.
    func saveAgain(done: @escaping @Sendable () -> Void) {
        let lifecycle = manager.lifecycle, work = state.withLock { $0.work }
        lifecycle.runAside { [self] in
            let failures = await lifecycle.checkpoint(within: lifecycle.policy.backgroundDeadline)
            state.withLock { state in
                state.isSavingAgain = false
                // Otherwise some have begun meanwhile, and it is done once more after them.
                if state.work == work { (state.hasWorked, state.checkpoint) = (false, failures.isEmpty) }
            }
            done()
        }
    }
}
