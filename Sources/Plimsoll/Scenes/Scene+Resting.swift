import Synchronization

/// A scene that nobody sees is suspended by itself, in time.
extension Scene {
    /// It is hidden from now on: after a while it is suspended.
    func hide() {
        let now = lifecycle.alarms.heartbeat.running
        contents.withLock { $0.hiddenSince = now }
        watchIdleness()
    }

    /// It comes to the front, or ends.
    func unhide() {
        let alarm = contents.withLock { contents in
            contents.rests = false
            defer { contents.restAlarm = nil }
            return contents.restAlarm
        }
        alarm?.cancel()
    }

    /// Has it suspended once it was hidden and not used for the policy's time and none of its background tasks is alive.
    func watchIdleness() {
        guard let limit = lifecycle.policy.sceneSuspendsAfter, state == .background else { return }
        let now = lifecycle.alarms.heartbeat.running
        let left = contents.withLock { max($0.hiddenSince, $0.lastUsed) } + limit - now
        if left <= .zero {
            // The last of its tasks to end comes here again.
            guard !tasks.hasLiveTasks else { return }
            lifecycle.threads.run { await self.rest() }
            return
        }
        let alarm = lifecycle.alarms.set(.deadline, after: left) { [weak self] in self?.watchIdleness() }
        let former = contents.withLock { contents in
            defer { contents.restAlarm = alarm }
            return contents.restAlarm
        }
        former?.cancel()
    }

    private func rest() async {
        contents.withLock { if $0.wanted > .notRunning { $0.rests = true } }
        _ = try? await follow(.idle, within: lifecycle.policy.backgroundDeadline)
    }

    /// Somebody has something to do with it behind the front: if it is suspended, it goes on in the background.
    func wake() async {
        let wanted = contents.withLock { $0.wanted }
        if wanted == .suspended {
            _ = try? await go(.background, .operator)
        } else if state == .suspended {
            _ = try? await go(wanted, .operator)
        } else {
            touch()
        }
    }
}
