import Plimsoll
import Synchronization

/// Weak references to the registered secrets.
final class SecretRegistry: Sendable {
    private struct Kept {
        weak var secret: Secret?
    }

    private struct State {
        var secrets: [Kept] = []
        /// The count at which dead references are removed.
        var sweepAt = 64
    }

    private let state = Mutex(State())

    /// Registers `secret`.
    ///
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

    /// Wipes the secrets that match.
    ///
    /// - Parameter parker: unparked for each secret that is erased later.
    /// - Returns: the secrets that had contents, and those of them still in use.
    func wipe(telling parker: Parker? = nil, where matches: (Secret) -> Bool) -> (wiped: [Secret], inUse: [Secret]) {
        let full = all.filter { !$0.isWiped && matches($0) }
        let inUse = full.filter { !$0.wipe(telling: parker) }
        return (full, inUse)
    }
}
