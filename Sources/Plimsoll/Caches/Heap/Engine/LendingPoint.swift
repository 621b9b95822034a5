#if DEBUG
import Synchronization

/// Steps of borrowing between which another thread may act. Tests stop a thread there. Release builds contain
/// neither the steps nor the check.
@usableFromInline
enum LendingPoint: Sendable {
    /// The borrower has cleared its hazard pointer, and has not checked for a given reference yet.
    case ended
    /// The borrower has seen a given reference, and has not taken the reference yet.
    case seen
    /// The writer has retained the value for the borrower, and has not given the reference yet.
    case retained
    /// The writer has given the reference, and has not checked yet if that was too late.
    case given

    private static let isWatched = Atomic(false)
    private static let watcher = Mutex<(@Sendable (LendingPoint) -> Void)?>(nil)

    /// Registers `body`, which every thread calls when passing a step. `body` may take long.
    static func watch(_ body: @escaping @Sendable (LendingPoint) -> Void) {
        watcher.withLock { $0 = body }
        isWatched.store(true, ordering: .releasing)
    }

    @usableFromInline @inline(never)
    func pass() {
        guard Self.isWatched.load(ordering: .acquiring) else { return }
        Self.watcher.withLock { $0 }?(self)
    }
}
#endif
