import Glibc
import Plimsoll
import Synchronization
import TestSupport
import Testing

/// A purgeable whose release returns only after `letGo()`. After `block()`, reads of `heldBytes` wait for `letGo()` as
/// well.
final class SlowHolder: Purgeable {
    let name = "slow"
    let rebuildCost = RebuildCost.cheap
    private let state = Mutex((isAsked: false, blocks: false, isFree: false))

    var heldBytes: Int {
        if state.withLock({ $0.blocks }) { wait() }
        return 7
    }

    var isAsked: Bool { state.withLock { $0.isAsked } }
    func block() { state.withLock { $0.blocks = true } }
    func letGo() { state.withLock { $0.isFree = true } }

    func release(_ target: Int) -> Int {
        wait()
        return 7
    }

    private func wait() {
        state.withLock { $0.isAsked = true }
        blockUntil("the test's word") { state.withLock { $0.isFree } }
    }
}
