import Synchronization

/// A block of bytes that the kernel itself may take while nobody accesses it: the `NSPurgeableData` of Linux.
///
///     let thumbnail = PurgeableBuffer("thumbnail", byteCount: 8 << 20)
///     thumbnail.withAccess { bytes in render(into: &bytes) }
///     // Later: `nil` if it had to go, and then it is to be made anew.
///     let sum = thumbnail.withAccess { bytes in checksum(bytes.bytes) }
///
/// Between accesses its pages are offered to the kernel (`MADV_FREE`), which takes them inside the page fault of whoever needs memory: before it
/// swaps, and before it kills. That needs no manager, no thread and no notice. The contents are there whole or not at all: if one page was taken the
/// buffer is *discarded*, its other pages are given back at once, and no access to it begins any more. Make another one then. So a buffer
/// should be one value that is made at once, of 64 KiB to 8 MiB.
///
/// *Life*: made not accessed (unlike `NSPurgeableData`), all zeros, with no page resident; until its first access it cannot be taken. When an access
/// ends and none is left, every page becomes resident and is offered. The kernel takes first what was offered first ever, whatever was accessed
/// since: what is hot stays accessed.
///
/// *Cost*: beginning the first access and ending the last one write a word of every page, and the latter makes one system call; measured 11 to 25 us a
/// MiB each on pages of 4 KiB, 1 to 3 us on huge ones (`plimsoll bench buffer`). Nested accesses only count.
///
/// *Threads*: any may begin and end accesses. Whoever accesses it together shares the bytes: a thread that writes what another one
/// reads or writes at that time needs a lock of its own.
///
/// *Forks*: a child has none of it. There every buffer made before is discarded, and one that is being accessed reads as zeros.
///
/// *Locked memory*: after `mlockall` the kernel takes no pages; a buffer then goes by `discard()` and `release(_:)` only, and `isVolatile` is false.
///
/// In debug builds touching the bytes outside an access ends the process with `SIGSEGV`; in release builds it goes unnoticed and may read zeros.
public final class PurgeableBuffer: VolatilePurgeable {
    public let name: String
    public let rebuildCost: RebuildCost
    /// Bytes it gives access to, as asked for.
    public let byteCount: Int

    enum Phase {
        /// Made, and never accessed: no page is there yet.
        case untouched
        /// Somebody has access; what is condemned goes when that ends, and no other access begins.
        case accessed(isCondemned: Bool)
        /// Marked, and the kernel's to take if it would have them.
        case offered(isVolatile: Bool)
        case discarded
    }

    struct State {
        var phase = Phase.untouched
        var accesses = 0
        var meter: ChargeMeter?
    }

    // What is mutable and what guards it:
    //   state   its mutex; held over one pass through the pages, never over anybody's code
    //   pages   `state`'s mutex as well, but for the bytes of who has access
    //   taken   bytes found taken that `noticeDrops` has not told yet; relaxed, a number that publishes nothing else
    let state: Mutex<State>
    let taken = Atomic<Int>(0)
    let pages: VolatilePages?

    /// A buffer of zeros.
    ///
    /// If no memory can be mapped for it, it is discarded from the start.
    ///
    /// - Parameters:
    ///   - name: how reports name it.
    ///   - byteCount: 0 or more bytes. The kernel's pages hold them, so small buffers waste most of one, and of a second one for bookkeeping.
    ///   - rebuildCost: what it costs to make the contents again.
    public convenience init(_ name: String = "buffer", byteCount: Int, rebuildCost: RebuildCost = .cheap) {
        self.init(name, byteCount: byteCount, rebuildCost: rebuildCost, usesHugePages: true, isGuarded: Self.isDebugBuild)
    }

    /// - Parameters:
    ///   - usesHugePages: whether the kernel may use huge pages.
    ///   - isGuarded: whether touching the bytes outside an access ends the process.
    package init(_ name: String = "buffer", byteCount: Int, rebuildCost: RebuildCost = .cheap, usesHugePages: Bool = true, isGuarded: Bool) {
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
    /// - Returns: whether an access has begun. If not the contents are gone, for good, and there is nothing to end.
    /// - Complexity: O(pages) for the first access, O(1) for one within another.
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

    /// Ends an access that has begun; with the last one the contents are the kernel's to take.
    ///
    /// Ending more than have begun is a mistake that would take the contents from under somebody else: it stops the process.
    ///
    /// - Complexity: O(pages) for the last access, O(1) for one within another.
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

    /// Runs `body` with access to the bytes; `nil`, without running it, if the contents are gone.
    ///
    /// - Parameter body: gets `byteCount` bytes: zeros at first, then what was written last.
    public func withAccess<Value, Problem: Error>(_ body: (inout MutableRawSpan) throws(Problem) -> Value) throws(Problem) -> Value? {
        guard let pages, beginAccess() else { return nil }
        defer { endAccess() }
        var bytes = UnsafeMutableRawBufferPointer(start: pages.start, count: byteCount).mutableBytes
        return try body(&bytes)
    }

    /// Where the bytes are for whoever has access, for faces of the buffer that hand them on; `nil` if none could be mapped.
    package var address: UnsafeMutableRawPointer? { pages?.start }

    // MARK: State

    /// Whether the contents are gone, as far as is known without looking; or will be when the current access ends.
    ///
    /// That it says no is no promise: only an access keeps the kernel off.
    public var isDiscarded: Bool {
        guard let pages, pages.isAlive else { return true }
        return state.withLock { state in
            switch state.phase {
            case .discarded, .accessed(isCondemned: true): true
            case .untouched, .accessed, .offered: false
            }
        }
    }

    /// Whether the kernel may take the contents now. Not while it is accessed, nor before it ever was, nor in locked memory (`mlockall`).
    public var isVolatile: Bool { volatileBytes > .zero }

    /// Gives the memory back now, or when the current access ends; no other access begins from now on.
    public func discard() {
        guard let pages, pages.isAlive else { return }
        state.withLock { state in
            if case .accessed = state.phase { state.phase = .accessed(isCondemned: true) } else { Self.discard(pages, &state) }
        }
    }

    /// Does it; under the lock.
    static func discard(_ pages: VolatilePages, _ state: inout State) {
        if case .discarded = state.phase { return }
        state.phase = .discarded
        pages.giveBack()
        state.meter?.give(pages.mappedBytes)
    }

    /// Discards it if bytes were found taken; true if none were.
    func note(_ count: Int, _ pages: VolatilePages, _ state: inout State) -> Bool {
        if count == 0 { return true }
        taken.wrappingAdd(count, ordering: .relaxed)
        Self.discard(pages, &state)
        return false
    }
}
