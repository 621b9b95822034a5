import Synchronization

/// The requirements of `VolatilePurgeable`, for a manager.
extension PurgeableBuffer {
    /// Equals `byteCount` between accesses; zero during an access, before the first and after a discard.
    public var heldBytes: Int {
        guard let pages, pages.isAlive else { return 0 }
        return state.withLock { if case .offered = $0.phase { byteCount } else { 0 } }
    }

    /// Bytes of `heldBytes` that the kernel may reclaim by itself: all, or none in locked memory.
    public var volatileBytes: Int {
        guard let pages, pages.isAlive else { return 0 }
        return state.withLock { if case .offered(isVolatile: true) = $0.phase { byteCount } else { 0 } }
    }

    /// Discards the buffer, except during an access or before the first one.
    public func release(_ target: Int) -> Int {
        guard target > 0, let pages, pages.isAlive else { return 0 }
        return state.withLock { state in
            guard case .offered = state.phase else { return 0 }
            Self.discard(pages, &state)
            return byteCount
        }
    }

    /// Declares the mapped bytes, used or not, until the buffer is discarded. Does nothing if a meter is attached
    /// already.
    package func attach(volatile meter: ChargeMeter) {
        guard let pages, pages.isAlive else { return }
        state.withLock { state in
            guard state.meter == nil else { return }
            if case .discarded = state.phase { return }
            state.meter = meter
            meter.takeAnyway(pages.mappedBytes)
        }
    }

    /// Checks every page between accesses and discards the buffer if the kernel took one.
    ///
    /// - Returns: bytes found taken, including those that a `beginAccess` found since the last call.
    public func noticeDrops() -> Int {
        lookForDrops()
        return taken.exchange(0, ordering: .relaxed)
    }

    /// Checks every page between accesses and discards the buffer if the kernel took one. The next `noticeDrops`
    /// reports the bytes.
    package func lookForDrops() {
        guard let pages, pages.isAlive else { return }
        state.withLock { state in
            if case .offered(isVolatile: true) = state.phase { _ = note(pages.taken(), pages, &state) }
        }
    }

    /// Does nothing: only the owner knows when a buffer is worth nothing any more.
    public func giveBackIdle() {}

    /// Makes the kernel reclaim offered pages now, as under memory pressure; all pages unless a range is given. For
    /// tests and the torture.
    package func reclaim(pages range: Range<Int>? = nil) { pages?.reclaim(range) }
}

extension PurgeableBuffer: PromptPurgeable {}
