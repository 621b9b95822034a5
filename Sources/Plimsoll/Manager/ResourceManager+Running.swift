import Synchronization

/// Functions for a product that runs a manager as a service.
extension ResourceManager {
    /// True if the loop completed a turn lately. A disabled loop counts as alive.
    package var isAlive: Bool {
        guard let seen = parts.lastTurn.withLock({ $0?.reading.at }) else { return true }
        // Running time excludes a freeze. The loop reads at the latest after `Pace.longest`.
        return parts.time.elapsed() - seen < Pace.longest * 3 + .seconds(10)
    }

    /// Calls `body`, which may block, after the loop's first turn. Calls `body` also if the loop has ended or is
    /// disabled.
    package func whenFirstTurnIsOver(_ body: @escaping @Sendable () -> Void) {
        parts.firstTurn.whenOver { [threads = parts.threads] in threads.run(body) }
    }

    /// Ends `run()`, as cancelling its task does.
    package func stop() {
        parts.inbox.stop()
        source.wake()
    }
}
