import Synchronization

/// A block of bytes that the kernel itself may take between accesses: the `NSPurgeableData` of Linux.
///
///     let thumbnail = PurgeableBuffer("thumbnail", byteCount: 8 << 20)
///     thumbnail.withAccess { bytes in render(into: &bytes) }
///     // Later: `nil` if the contents were taken; then make them anew.
///     let sum = thumbnail.withAccess { bytes in checksum(bytes.bytes) }
///
/// Between accesses the pages are offered to the kernel (`MADV_FREE`). The kernel takes them inside the page fault of
/// the thread that needs memory: before it swaps, and before it kills. That needs no manager, no thread and no notice.
///
/// The contents are there whole or not at all. If one page was taken, the buffer is *discarded*: the other pages are
/// released at once, and no further access begins. Make another buffer then. So a buffer should hold one value that is
/// made at once, of 64 KiB to 8 MiB.
///
/// *Life*: a new buffer is not accessed (unlike `NSPurgeableData`). The contents are zeros, no page is resident, and
/// none can be taken until the first access. When the last of the current accesses ends, every page becomes resident
/// and is offered. The kernel first takes the pages that were first offered, even if they were accessed since. So keep
/// hot buffers accessed.
///
/// *Cost*: beginning the first access and ending the last one write a word of every page. Ending the last one also
/// makes one system call. Each was measured at 11 to 25 us a MiB on pages of 4 KiB, and at 1 to 3 us on huge pages
/// (`plimsoll-bench buffer`). Nested accesses only count.
///
/// *Threads*: any thread may begin and end accesses. Concurrent accesses share the bytes. A thread that writes bytes
/// while another thread reads or writes them needs an additional lock.
///
/// *Forks*: a child inherits no contents. In the child every buffer made before is discarded, and one that is being
/// accessed reads as zeros.
///
/// *Locked memory*: after `mlockall` the kernel takes no pages. A buffer is then released only by `discard()` and
/// `release(_:)`, and `isVolatile` is false.
///
/// In debug builds touching the bytes outside an access ends the process with `SIGSEGV`. In release builds such a touch
/// goes unnoticed and may read zeros.
public final class PurgeableBuffer: Purgeable, VolatilePurgeable {
    public let name: String
    public let rebuildCost: RebuildCost
    /// Number of bytes of the contents, as requested.
    public let byteCount: Int

    enum Phase {
        /// Made, and never accessed: no page is resident.
        case untouched
        /// At least one access. A buffer that is due for discard is discarded when the accesses end, and no other access begins.
        case accessed(isCondemned: Bool)
        /// Marked and offered to the kernel.
        case offered(isVolatile: Bool)
        case discarded
    }

    struct State {
        var phase = Phase.untouched
        var accesses = 0
        var meter: ChargeMeter?
    }

    // Mutable state and its guards:
    //   state   its mutex; held over one pass through the pages, never while application code runs
    //   pages   `state`'s mutex as well, but for the bytes during an access
    //   taken   bytes found taken that `noticeDrops` has not reported yet; relaxed, a number that publishes nothing
    //   else
    let state: Mutex<State>
    let taken = Atomic<Int>(0)
    let pages: VolatilePages?

    /// Creates a buffer of zeros.
    ///
    /// If no memory can be mapped, the buffer is discarded from the start.
    ///
    /// - Parameters:
    ///   - name: name in reports.
    ///   - byteCount: 0 or more bytes. The kernel's pages hold them, so small buffers waste most of one, and of a
    ///     second one for bookkeeping.
    ///   - rebuildCost: cost of making the contents again.
    public convenience init(_ name: String = "buffer", byteCount: Int, rebuildCost: RebuildCost = .cheap) {
        self.init(
            name, byteCount: byteCount, rebuildCost: rebuildCost, usesHugePages: true, isGuarded: Self.isDebugBuild)
    }

    /// - Parameters:
    ///   - usesHugePages: permission for the kernel to use huge pages.
    ///   - isGuarded: true to end the process when the bytes are touched outside an access.
    package init(
        _ name: String = "buffer", byteCount: Int, rebuildCost: RebuildCost = .cheap, usesHugePages: Bool = true,
        isGuarded: Bool
    ) {
        precondition(byteCount >= 0, "PurgeableBuffer \(name): byteCount is \(byteCount), allowed is 0 or more")
        self.name = name
        self.rebuildCost = rebuildCost
        self.byteCount = byteCount
        pages = VolatilePages(byteCount: byteCount, usesHugePages: usesHugePages, isGuarded: isGuarded)
        state = Mutex(State(phase: pages == nil ? .discarded : .untouched))
    }

    deinit {
        guard let pages else { return }
        if pages.isAlive { state.withLock { $0.meter }?.give(pages.mappedBytes) }
        pages.unmap()
    }

    private static var isDebugBuild: Bool {
        #if DEBUG
        return true
        #else
        return false
        #endif
    }

    // MARK: Access

    /// Keeps the contents from being taken until `endAccess()`, if they are still there. Accesses nest.
    ///
    /// - Returns: true if an access has begun. If false, the contents are gone for good, and there is no access to end.
    /// - Complexity: O(pages) for the first access, O(1) for a nested one.
    public func beginAccess() -> Bool {
        guard let pages, pages.isAlive else { return false }
        return state.withLock { state in
            switch state.phase {
            case .discarded, .accessed(isCondemned: true): return false
            case .accessed, .untouched: break
            case .offered:
                guard note(pages.claim(), pages, &state) else { return false }
            }
            state.phase = .accessed(isCondemned: false)
            state.accesses += 1
            return true
        }
    }

    /// Ends an access that has begun. After the last one the kernel may take the contents.
    ///
    /// Ending more accesses than have begun would take the contents from another caller. That is a programming error
    /// and stops the process.
    ///
    /// - Complexity: O(pages) for the last access, O(1) for a nested one.
    public func endAccess() {
        guard let pages, pages.isAlive else { return }
        state.withLock { state in
            guard case .accessed(let isCondemned) = state.phase else {
                preconditionFailure("PurgeableBuffer \(name): endAccess without a beginAccess that returned true")
            }
            state.accesses -= 1
            if state.accesses > 0 { return }
            if isCondemned { Self.discard(pages, &state) } else { state.phase = .offered(isVolatile: pages.offer()) }
        }
    }

    /// Runs `body` with access to the bytes. Returns `nil`, without running `body`, if the contents are gone.
    ///
    /// - Parameter body: a closure that gets `byteCount` bytes: zeros at first, later the bytes last written.
    public func withAccess<Value, Problem: Error>(_ body: (inout MutableRawSpan) throws(Problem) -> Value)
        throws(Problem) -> Value?
    {
        guard let pages, beginAccess() else { return nil }
        defer { endAccess() }
        var bytes = UnsafeMutableRawBufferPointer(start: pages.start, count: byteCount).mutableBytes
        return try body(&bytes)
    }

    /// Address of the bytes, for wrappers that hand them on during an access; `nil` if no memory could be mapped.
    package var address: UnsafeMutableRawPointer? { pages?.start }

    // MARK: State

    /// True if the contents are known to be gone, without a check of the pages, or will be gone when the current access
    /// ends.
    ///
    /// False is no promise: only an access keeps the kernel off.
    public var isDiscarded: Bool {
        guard let pages, pages.isAlive else { return true }
        return state.withLock { state in
            switch state.phase {
            case .discarded, .accessed(isCondemned: true): true
            case .untouched, .accessed, .offered: false
            }
        }
    }

    /// True if the kernel may take the contents now. False during an access, before the first one, and in locked memory
    /// (`mlockall`).
    public var isVolatile: Bool { volatileBytes > .zero }

    /// Releases the memory now, or when the current access ends. No other access begins from now on.
    public func discard() {
        guard let pages, pages.isAlive else { return }
        state.withLock { state in
            if case .accessed = state.phase {
                state.phase = .accessed(isCondemned: true)
            } else {
                Self.discard(pages, &state)
            }
        }
    }

    /// Discards the buffer. Call under the lock.
    static func discard(_ pages: VolatilePages, _ state: inout State) {
        if case .discarded = state.phase { return }
        state.phase = .discarded
        pages.giveBack()
        state.meter?.give(pages.mappedBytes)
    }

    /// Discards the buffer if bytes were found taken. Returns true if none were.
    func note(_ count: Int, _ pages: VolatilePages, _ state: inout State) -> Bool {
        if count == 0 { return true }
        taken.wrappingAdd(count, ordering: .relaxed)
        Self.discard(pages, &state)
        return false
    }
}

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
        checkForDrops()
        return taken.exchange(0, ordering: .relaxed)
    }

    /// Checks every page between accesses and discards the buffer if the kernel took one. The next `noticeDrops`
    /// reports the bytes.
    package func checkForDrops() {
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
