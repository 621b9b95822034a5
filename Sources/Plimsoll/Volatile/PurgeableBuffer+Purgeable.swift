import Synchronization

/// What a manager asks of it.
extension PurgeableBuffer {
    /// `byteCount` between accesses, zero during one, before the first and after the last.
    public var heldBytes: Int {
        guard let pages, pages.isAlive else { return 0 }
        return state.withLock { if case .offered = $0.phase { byteCount } else { 0 } }
    }

    /// What of `heldBytes` the kernel may take by itself: all, or none in locked memory.
    public var volatileBytes: Int {
        guard let pages, pages.isAlive else { return 0 }
        return state.withLock { if case .offered(isVolatile: true) = $0.phase { byteCount } else { 0 } }
    }

    /// Discards it unless it is accessed or never was.
    public func release(_ target: Int) -> Int {
        guard target > 0, let pages, pages.isAlive else { return 0 }
        return state.withLock { state in
            guard case .offered = state.phase else { return 0 }
            Self.discard(pages, &state)
            return byteCount
        }
    }

    /// Declares what is mapped, used or not, until it is discarded. A second manager's meter is told nothing.
    public func attach(volatile meter: ChargeMeter) {
        guard let pages, pages.isAlive else { return }
        state.withLock { state in
            guard state.meter == nil else { return }
            if case .discarded = state.phase { return }
            state.meter = meter
            meter.takeAnyway(pages.mappedBytes)
        }
    }

    /// Looks at every page between accesses; if one was taken, discards the buffer.
    ///
    /// - Returns: bytes found taken, also by a `beginAccess` since the last call.
    public func noticeDrops() -> Int {
        lookForDrops()
        return taken.exchange(0, ordering: .relaxed)
    }

    /// Looks at every page between accesses; if one was taken, discards the buffer. What was taken remains to be told.
    package func lookForDrops() {
        guard let pages, pages.isAlive else { return }
        state.withLock { state in
            if case .offered(isVolatile: true) = state.phase { _ = note(pages.taken(), pages, &state) }
        }
    }

    /// Does nothing: when a buffer is worth nothing any more, its owner knows.
    public func giveBackIdle() {}

    /// Has the kernel take pages now that are offered, as it would for want of memory; all unless told which. For tests and the torture.
    package func reclaim(pages range: Range<Int>? = nil) { pages?.reclaim(range) }
}
