import Synchronization

/// The secrets that are looked after, as long as somebody else holds them.
final class SecretRegistry: Sendable {
    private struct Kept {
        weak var secret: Secret?
    }

    private struct State {
        var secrets: [Kept] = []
        /// At so many the dead are thrown out.
        var sweepAt = 64
    }

    private let state = Mutex(State())

    /// - Complexity: O(1), amortized.
    func add(_ secret: Secret) {
        state.withLock { state in
            state.secrets.append(Kept(secret: secret))
            guard state.secrets.count >= state.sweepAt else { return }
            state.secrets.removeAll { $0.secret == nil }
            state.sweepAt = max(64, 2 * state.secrets.count)
        }
    }

    var all: [Secret] { state.withLock { $0.secrets.compactMap(\.secret) } }

    /// Wipes those that match.
    ///
    /// - Parameter parker: whom to wake for each that goes later.
    /// - Returns: those that had contents, and which of them somebody is still inside.
    func wipe(telling parker: Parker? = nil, where matches: (Secret) -> Bool) -> (wiped: [Secret], inUse: [Secret]) {
        let full = all.filter { !$0.isWiped && matches($0) }
        let inUse = full.filter { !$0.wipe(telling: parker) }
        return (full, inUse)
    }
}
