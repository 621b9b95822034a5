#if DEBUG
import Synchronization

/// The moments of lending between which another thread may do something. Tests hold a thread there; release builds have neither the moments nor the look.
@usableFromInline
enum LendingPoint: Sendable {
    /// Who borrowed says so no longer, and has not looked for a gift yet.
    case ended
    /// Who borrowed has seen a gift, and not taken it yet.
    case seen
    /// Who writes has counted a reference for who borrows, and not given it yet.
    case retained
    /// Who writes has given it, and not looked yet whether that was too late.
    case given

    private static let isWatched = Atomic(false)
    private static let watcher = Mutex<(@Sendable (LendingPoint) -> Void)?>(nil)

    /// Has every thread that passes a point call `body` there, which may take its time.
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
