/// An object that holds memory and can release that memory.
///
/// A manager calls a purgeable on threads of the manager, or on the thread that requests a release, never under a lock.
/// All members may be called from any thread.
public protocol Purgeable: AnyObject, Sendable {
    /// The name shown in reports.
    var name: String { get }

    /// Cost of making the contents again.
    var rebuildCost: RebuildCost { get }

    /// Bytes that `release` could release now.
    var heldBytes: Int { get }

    /// Releases at least `target` bytes, the least valuable first, or everything if less is held.
    ///
    /// - Returns: the bytes released. The manager itself measures how much the kernel got back.
    func release(_ target: Int) -> Int

    /// Releases memory kept ready besides the contents, such as spare buffers. Called on the way to the background.
    /// Handles and contents stay valid (C88).
    ///
    /// - Returns: the bytes released. The default does nothing.
    func dropSpares() -> Int

    /// Asks the purgeable to stay within `limit` from now on, without releasing anything for that. `nil` lifts the
    /// restriction, at the latest at the end of the registration or of the manager. The default does nothing.
    func restrict(to limit: ByteCount?)

    /// Observed time to make a byte of the contents again, in nanoseconds; `nil` if unknown. Among purgeables of
    /// one `rebuildCost`, the cheapest to rebuild are asked first. Purgeables with an unknown rebuild time rank at
    /// the median. The default is `nil`.
    ///
    /// Read before each pass.
    var rebuildTimePerByte: Double? { get }

    /// True if a manager may ask the purgeable to release under pressure. A purgeable that returns false is
    /// registered for the rest: its name appears in the manager's reports, and its bytes are counted. If its
    /// charges are declared, its growth is bounded by the room in memory. The default is true.
    ///
    /// Read once, at registration.
    var releasesUnderPressure: Bool { get }
}

extension Purgeable {
    public func dropSpares() -> Int { 0 }
    public var rebuildTimePerByte: Double? { nil }
    public var releasesUnderPressure: Bool { true }
    public func restrict(to limit: ByteCount?) {}
}

/// A purgeable of this package that declares its memory, so that a manager bounds its growth.
package protocol MeteredPurgeable: Purgeable {
    /// Attaches the meter on which the purgeable may declare the bytes taken and released. Called once, at
    /// registration.
    ///
    /// - Returns: true if all memory held is declared on the meter.
    func attach(_ meter: ChargeMeter) -> Bool
}

extension MeteredPurgeable {
    package func attach(_ meter: ChargeMeter) -> Bool { false }
}

/// A `Purgeable` made of two closures: an adapter for code that has its own caches.
final class ClosurePurgeable: Purgeable {
    let name: String
    let rebuildCost: RebuildCost
    private let held: @Sendable () -> Int
    private let letGo: @Sendable (Int) -> Int

    init(
        _ name: String, rebuildCost: RebuildCost, held: @escaping @Sendable () -> Int,
        release: @escaping @Sendable (Int) -> Int
    ) {
        self.name = name
        self.rebuildCost = rebuildCost
        self.held = held
        letGo = release
    }

    var heldBytes: Int { held() }
    func release(_ target: Int) -> Int { letGo(target) }
}

/// A purgeable with statistics, like a cache, for a manager's status.
package protocol CountingPurgeable: Purgeable {
    /// Current statistics. Called from any thread, occasionally.
    var statistics: CacheStatistics { get }

    /// Maximum of the held bytes; `nil` for no limit.
    var holdsAtMost: ByteCount? { get }
}

/// A purgeable with a limit that an operator may change at any time through a manager.
package protocol ResizablePurgeable: CountingPurgeable {
    /// Sets the limit, and evicts the excess. Called from any thread.
    func resize(to limit: ByteCount)
}

/// A purgeable of this library that answers without waiting for application code.
package protocol PromptPurgeable: Purgeable {}

/// A purgeable of entries, each of which declares what it costs.
package protocol SampledPurgeable: Purgeable {
    /// Calls `body` with up to `count` entries from all over the contents, which live until `body` returns. Does not
    /// count as a use.
    func withSample(of count: Int, _ body: ([SampledEntry]) -> Void)
}

/// An entry of a purgeable, as it lies in memory.
package struct SampledEntry: Sendable {
    /// The declared bytes.
    package var cost: Int
    /// Size of key and value, without what they refer to.
    package var inlineBytes: Int
    /// The words of key and value, pointers among them.
    package var words: [UInt64]

    package init(cost: Int, inlineBytes: Int, words: [UInt64]) {
        (self.cost, self.inlineBytes, self.words) = (cost, inlineBytes, words)
    }
}

/// Cost of making a value again. Memory with a lower cost is released first.
public enum RebuildCost: UInt8, Sendable, Hashable, Comparable, CaseIterable, Codable {
    /// Microseconds of computation.
    case trivial
    /// A read from a local disk, milliseconds of computation.
    case cheap
    /// A query to another service, tens of milliseconds.
    case expensive
    /// Seconds, or a delay that a user notices. Released at the critical level only.
    case precious

    public static func < (left: RebuildCost, right: RebuildCost) -> Bool { left.rawValue < right.rawValue }
}

/// A purgeable whose entries carry tags, so that all entries of one tenant, account or credential can be purged at
/// once (C67).
///
/// `PurgeableCache` and `VolatileCache` conform. Both methods may be called from any thread, also while `release`
/// runs.
package protocol TagPurgeable: AnyObject, Sendable {
    /// The name shown in reports.
    var name: String { get }

    /// Removes every entry with that tag. Values with that tag that are being loaded now are not kept.
    ///
    /// - Returns: the number of entries removed.
    @discardableResult
    func purge(tag: String) -> Int

    /// Returns the number of entries with that tag.
    func count(tag: String) -> Int
}

/// A cache that learns its miss curve from a sample of requests, and is given a share of the memory for caches.
package protocol SharedPurgeable: MeteredPurgeable, CountingPurgeable {
    /// Starts to learn, or stops. Stopping forgets what was learnt.
    ///
    /// - Parameter onRound: called after each `CurveMeter.round` requests, by the thread that made the last of them,
    ///   under no lock; `nil` to stop.
    func learn(onRound: (@Sendable () -> Void)?)

    /// Ends a round of learning, and sets the sizes for the next.
    ///
    /// - Parameters:
    ///   - bytes: the most that the cache may hold in the next round.
    ///   - now: the time, from which the rate of requests follows.
    /// - Returns: the curve and the load time so far; `nil` if the cache does not learn.
    func endRound(upTo bytes: Int, at now: Duration) -> Learnt?

    /// Sets the share in bytes; `nil` for none. At the limit of memory a cache above its share makes room for those
    /// below. Elsewhere a share changes nothing.
    func setShare(_ bytes: Int?)

    /// Evicts up to `count` bytes, but none of the share.
    ///
    /// - Returns: the bytes evicted.
    func evictAboveShare(_ count: Int) -> Int
}

/// A miss curve, and the time that a load takes.
package struct Learnt: Sendable {
    package var curve: MissCurve
    /// Nanoseconds, of recent loads more than of old ones; `nil` before the first load.
    package var loadTime: Double?
    /// Requests a second, of recent rounds more than of old ones; `nil` if not known yet.
    package var rate: Double?
}

/// A purgeable whose pages the kernel may reclaim at any instant, without asking.
///
/// Such pages count as available, not as used. The kernel reclaims them inside the allocator's own page fault
/// before any process is killed (`MADV_FREE`, mm/vmscan.c). A manager therefore asks these purgeables first, but
/// relies on the others to cover a shortfall.
package protocol VolatilePurgeable: MeteredPurgeable {
    /// Bytes in pages that the kernel may reclaim now, as far as known without reading the pages.
    var volatileBytes: Int { get }

    /// Attaches the meter on which the purgeable declares every page mapped and released. Called once, at
    /// registration. If `take` returns false, no idle memory is left: the purgeable evicts from its own pages or
    /// does without.
    func attach(volatile meter: ChargeMeter)

    /// Checks which pages the kernel has reclaimed since the last call, and forgets their contents. Cheap if none
    /// was reclaimed.
    ///
    /// - Returns: the bytes found reclaimed.
    func noticeDrops() -> Int

    /// Releases memory that has been of no use for long. Called every few seconds.
    func giveBackIdle()
}
