import Synchronization

/// What a product that runs a manager as a service asks of it.
extension ResourceManager {
    /// Whether the loop has come by lately. One that is to do nothing is alive.
    package var isAlive: Bool {
        guard let seen = parts.lastTurn.withLock({ $0?.reading.at }) else { return true }
        // By running time nothing is missed in a freeze; the loop looks at the latest after `Pace.longest`.
        return parts.time.elapsed() - seen < Pace.longest * 3 + .seconds(10)
    }

    /// Calls `body`, which may block, when the loop has looked at memory for the first time, or has ended or does not look at all.
    package func whenFirstTurnIsOver(_ body: @escaping @Sendable () -> Void) {
        parts.firstTurn.whenOver { [threads = parts.threads] in threads.run(body) }
    }

    /// Ends `run()` as cancelling its task would.
    package func stop() {
        parts.inbox.stop()
        source.wake()
    }
}
