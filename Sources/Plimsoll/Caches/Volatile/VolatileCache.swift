/// A cache in memory that the kernel itself reclaims when necessary, before any OOM kill.
///
/// Values are written to a log of mapped pages. Full segments of the log are offered to the kernel (`MADV_FREE`, Linux
/// 4.14). The kernel may drop their pages inside any allocation that finds no memory, at any speed, and no thread has
/// to react. A look-up copies the value out and then checks that all pages were there; if not, the look-up is a miss.
/// So such a cache is never the reason for an OOM kill, and may be as large as memory that would otherwise be idle.
///
/// Thread-safe. Look-ups take no lock and make no system call; writers exclude each other.
///
/// Seen by an orchestrator: resident memory and `anon` count these pages until they are taken; the working set and
/// `MemAvailable` don't. But once the kernel reclaims, pages that were read since move from `inactive_file` to
/// `active_file`, which the working set counts.
///
/// A forked child sees an empty cache and can insert nothing. The child should use caches of its own on one thread
/// only. Where the kernel refuses (before 4.14, under `mlockall`) this is an ordinary cache, of 64 MiB unless a limit
/// is set; see `isVolatile`.
public final class VolatileCache<Key: Hashable & VolatileStorable, Value: VolatileStorable>: Purgeable,
    VolatilePurgeable,
    TagPurgeable
{
    public let name: String
    public let rebuildCost: RebuildCost

    @usableFromInline let store: VolatileStore
    /// Age at which a value counts as missing, unless the value was inserted with a time to live; `nil` for never.
    public let timeToLive: Duration?
    @usableFromInline let scratch = ScratchPool()
    let loads = SingleFlight<Key, Value>()
    let loadRecord = LoadRecord()
    private let idleTime: Duration

    /// - Parameters:
    ///   - name: name in reports.
    ///   - limit: bound of the memory in use, without the index (some 20 bytes an entry); `nil` for all memory that
    ///     would otherwise be idle. A few pages are always allowed.
    ///   - rebuildCost: cost of making a value again.
    ///   - timeToLive: age at which a value counts as missing; `nil` for never.
    ///   - idleTime: without a limit, the time after which unused memory is released.
    ///   - allowsHugePages: permission for the kernel to use huge pages once the cache is larger than 32 MiB.
    public convenience init(
        _ name: String, limit: ByteCount? = nil, rebuildCost: RebuildCost = .cheap, timeToLive: Duration? = nil,
        idleTime: Duration = .seconds(900), allowsHugePages: Bool = true
    ) {
        self.init(
            name, limit: limit, rebuildCost: rebuildCost, timeToLive: timeToLive, idleTime: idleTime,
            allowsHugePages: allowsHugePages,
            isVolatile: VolatileMemory.isSupported, time: .running)
    }

    package init(
        _ name: String, limit: ByteCount? = nil, rebuildCost: RebuildCost = .cheap, timeToLive: Duration? = nil,
        idleTime: Duration = .seconds(900), allowsHugePages: Bool = true, isVolatile: Bool, time: Timekeeper
    ) {
        self.name = name
        self.rebuildCost = rebuildCost
        self.timeToLive = timeToLive
        self.idleTime = idleTime
        store = VolatileStore(limit: limit?.bytes, allowsHugePages: allowsHugePages, isVolatile: isVolatile, time: time)
    }

    // MARK: Values

    /// Returns the value under `key`, which thereby counts as used. Returns `nil` if there is none, if the value has
    /// expired or if the kernel took it.
    ///
    /// - Complexity: O(1) and a copy of the value; no lock, no system call, no allocation but the value's own.
    @inlinable
    public func value(forKey key: Key) -> Value? { value(forKey: key, isCounted: true) }

    /// - Parameter isCounted: true for a look-up of its own, which counts in the statistics and as a use.
    @inlinable
    func value(forKey key: Key, isCounted: Bool) -> Value? {
        read(key, isCounted: isCounted) { store, found in
            do {
                return try Value.decoded(byteCount: found.count) { store.copy(found, to: $0) }.map { .good($0) }
                    ?? .lost
            } catch {
                return .unreadable
            }
        }
    }

    /// Calls `body` with the bytes of the value under `key`: a copy that is valid until `body` returns.
    ///
    /// - Complexity: O(1) and a copy of the bytes; no lock, no system call, and for values up to 256 KiB no allocation.
    /// - Returns: the result of `body`; `nil` on a miss.
    @inlinable
    public func withBytes<R, E: Error>(forKey key: Key, _ body: (RawSpan) throws(E) -> R) throws(E) -> R? {
        let borrowed: (buffer: ScratchPool.Buffer, count: Int)? = read(key) { [scratch] store, found in
            let buffer = scratch.take(found.count)
            if store.copy(found, to: UnsafeMutableRawBufferPointer(start: buffer.start, count: found.count)) {
                return .good((buffer, found.count))
            }
            scratch.give(buffer)
            return .lost
        }
        guard let borrowed else { return nil }
        defer { scratch.give(borrowed.buffer) }
        return try body(UnsafeRawBufferPointer(start: borrowed.buffer.start, count: borrowed.count).bytes)
    }

    /// Keeps `value` under `key`, replacing the previous value.
    ///
    /// - Parameters:
    ///   - value: the value to keep, as bytes.
    ///   - key: the key for look-ups.
    ///   - tags: names under which `purge(tag:)` finds the value; at most 255.
    ///   - timeToLive: age at which the value counts as missing, in place of the cache's own.
    /// - Returns: false, and nothing has changed, in these cases: the value cannot be encoded, the value is larger than
    ///   the limit or than 4 GiB, the key is larger than a page, or there is no memory and nothing to evict.
    @inlinable
    @discardableResult
    public func insert(_ value: Value, forKey key: Key, tags: [String] = [], timeToLive: Duration? = nil) -> Bool {
        insert(value, forKey: key, tags: tags, timeToLive: timeToLive, of: nil)
    }

    @inlinable
    @discardableResult
    func insert(_ value: Value, forKey key: Key, tags: [String], timeToLive: Duration? = nil, of load: LoadOrigin?)
        -> Bool
    {
        if load == nil { revokeLoad(of: key) }
        let tags = tags.isEmpty ? [] : tags.map { Self.number(of: $0) }
        let isKept = try? value.withEncodedBytes { bytes in
            withKey(key) { hash, keyBytes, isSame in
                store.insert(
                    hash, keyBytes, bytes, timeToLive: timeToLive ?? self.timeToLive, tags: tags, of: load,
                    isSame: isSame)
            }
        }
        return isKept ?? false
    }

    /// Lets the value of a load of `key` in progress not be kept, because a new value is inserted. By the end of the
    /// load the new value may have been evicted, or taken by the kernel.
    @usableFromInline
    func revokeLoad(of key: Key) {
        if let loads = ownLoads, loads.isBusy { loads.revoke(key) }
    }

    /// The loads of this process; `nil` in a forked child. A thread that does not exist there may hold the lock of the
    /// loads for ever, or have begun a load that never ends.
    var ownLoads: SingleFlight<Key, Value>? { store.isForked ? nil : loads }

    /// Removes and returns the value under `key`; `nil` if there was none, or if the kernel took it.
    ///
    /// Of several concurrent callers one gets the value. The value of a load in progress for `key` is not kept, and
    /// later callers load anew.
    @discardableResult
    public func removeValue(forKey key: Key) -> Value? {
        if let loads = ownLoads, loads.isBusy {
            loads.revoke(key)
            store.awaitWriter()
        }
        let value: Value?? = withKey(key) { hash, keyBytes, isSame in
            store.noteRemoval(hash)
            while let found = store.find(hash, keyBytes, isSame: isSame) {
                // Read first: decoding is application code, which must not run under the lock.
                var isGood = false
                let value = try? Value.decoded(byteCount: found.count) { buffer in
                    isGood = store.copy(found, to: buffer)
                    return isGood
                }
                guard isGood ? store.remove(found) : !store.hasMoved(found) else { continue }
                guard let value = value.flatMap({ $0 }) else { break }
                store.counters.count(.hit)
                return value
            }
            store.counters.count(.miss)
            return nil
        }
        return value ?? nil
    }

    /// Returns true if there is a value under `key`. Does not count as a use. The kernel may take the value right
    /// afterwards.
    public func contains(_ key: Key) -> Bool {
        withKey(key) { hash, keyBytes, isSame in store.find(hash, keyBytes, isSame: isSame) != nil } ?? false
    }

    /// Removes everything and releases the memory. The values of loads in progress are not kept.
    public func removeAll() {
        ownLoads?.revokeAll()
        store.removeAll()
    }

    /// Removes every value with that tag. The value of a current load with that tag is not kept, and later callers load
    /// anew.
    ///
    /// No look-up finds such a value any more, but the bytes stay in the log until their segment is released. Data that
    /// must be erased belongs in a `Secret`.
    ///
    /// - Returns: number of values removed.
    /// - Complexity: O(bytes) in the segments that hold values with that tag, or one of 63 like it. There is no index
    ///   of tags. Such an index would cost every entry as much memory again as its place in the index does, and would
    ///   need an update for each page that the kernel takes.
    @discardableResult
    public func purge(tag: String) -> Int {
        ownLoads?.revokeAll(tag: tag)
        return store.purge(tag: Self.number(of: tag))
    }

    /// Returns the number of values with that tag. Values that the kernel has taken are not counted.
    ///
    /// - Complexity: as of `purge(tag:)`.
    public func count(tag: String) -> Int { store.count(tag: Self.number(of: tag)) }

    /// Calls `listener` with the key of each entry that leaves and the reason, on the thread that removed the entry,
    /// after the lock.
    ///
    /// Values are not passed, since their bytes may be gone. For the same reason entries that the kernel took leave
    /// without notice.
    public func onRemoval(_ listener: @escaping @Sendable (Key, RemovalReason) -> Void) {
        store.listen { bytes, reason in
            if let key = Self.key(bytes) { listener(key, reason) }
        }
    }

    // MARK: Size

    /// Bound of the memory in use; `nil` for all memory that would otherwise be idle. Lowering the bound evicts at
    /// once, oldest first, but spares hot entries.
    public var limit: ByteCount? {
        get { store.limit.map { ByteCount($0) } }
        set { store.setLimit(newValue?.bytes) }
    }

    /// True if the kernel may take the memory. If false, this is an ordinary cache that only evicts.
    public var isVolatile: Bool { store.isVolatile }

    /// Number of entries. Entries that the kernel has taken are counted until they are found missing.
    public var count: Int { statistics.count }

    /// Bytes of the entries, with keys and headers; `heldBytes` is the memory in which they lie.
    public var byteCount: Int { statistics.byteCount }

    /// Counters and current size of the cache.
    public var statistics: CacheStatistics {
        var statistics = store.statistics
        loadRecord.copy(into: &statistics)
        return statistics
    }

    // MARK: Purgeable

    public var heldBytes: Int { store.mapped }
    public var volatileBytes: Int { store.volatileBytes }

    /// Releases at least `target` bytes of memory, oldest first, or everything. Allocates nothing.
    public func release(_ target: Int) -> Int {
        scratch.clear()
        return store.release(target)
    }

    /// Frees the buffers in which `withBytes` assembles values.
    public func dropSpares() -> Int { scratch.clear() }
    public func restrict(to limit: ByteCount?) { store.restrict(to: limit?.bytes) }
    package func attach(volatile meter: ChargeMeter) { store.attach(meter) }
    /// Returns true and does nothing: this cache declares its memory on the meter for volatile memory.
    package func attach(_ meter: ChargeMeter) -> Bool { true }
    public func noticeDrops() -> Int { store.noticeDrops() }
    public func giveBackIdle() { if store.limit == nil { store.turnOver(olderThan: idleTime) } }
}

extension VolatileCache: CountingPurgeable {
    public var holdsAtMost: ByteCount? { limit }
}

extension VolatileCache: ResizablePurgeable {
    public func resize(to limit: ByteCount) { self.limit = limit }
}

extension VolatileCache: PromptPurgeable {}

extension VolatileCache: SharedPurgeable {
    package func learn(onRound: (@Sendable () -> Void)?) { store.learn(onRound: onRound) }

    package func endRound(upTo bytes: Int, at now: Duration) -> Learnt? {
        store.endRound(statistics, upTo: bytes, at: now)
    }

    package func setShare(_ bytes: Int?) { store.setShare(bytes) }
    package func evictAboveShare(_ count: Int) -> Int { store.evictAboveShare(count) }
}
