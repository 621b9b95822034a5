import Synchronization

/// What a product above this library puts around a manager's loop: it tells others of what is done, and ends the loop when it is asked to.
package protocol ManagerHost: AnyObject, Sendable {
    /// Whether the manager looks and acts at all.
    var isEnabled: Bool { get }

    /// Runs `loop`, which ends when the manager is stopped or the task cancelled.
    func run(_ loop: @Sendable () async throws -> Void) async throws
}

/// Conformed to by `ResourceManager` where a product above gives each manager a host: `run()`, which everybody calls, must find it from below.
package protocol HostedManager {
    /// A host, for a manager that has none yet.
    func makeHost() -> any ManagerHost
}

extension ResourceManager {
    /// The one host of this manager; `nil` where no product gives one.
    package var host: (any ManagerHost)? {
        if let host = parts.host.withLock({ $0 }) { return host }
        guard isHosted, let made = (self as? any HostedManager)?.makeHost() else { return nil }
        return parts.host.withLock { host in
            if host == nil { host = made }
            return host
        }
    }

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
