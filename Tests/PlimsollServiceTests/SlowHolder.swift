import Plimsoll
import Synchronization

/// Lets go of memory only when a test says so.
final class SlowHolder: Purgeable {
    let name = "slow"
    let rebuildCost = RebuildCost.cheap
    private let state = Mutex((isAsked: false, isFree: false))

    var heldBytes: ByteCount { .bytes(7) }
    var isAsked: Bool { state.withLock { $0.isAsked } }
    func letGo() { state.withLock { $0.isFree = true } }

    func release(_ target: ByteCount) -> ByteCount {
        state.withLock { $0.isAsked = true }
        while !state.withLock({ $0.isFree }) {}
        return .bytes(7)
    }
}
