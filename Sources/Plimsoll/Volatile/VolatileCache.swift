/// A cache of bytes in memory that the kernel itself takes back when it must, before it would kill anything.
///
/// Values are written to a log of mapped pages. Full stretches of it are handed to the kernel (`MADV_FREE`, Linux 4.14): it may drop
/// their pages inside any allocation that finds no memory, at any speed, without anybody having to react. A look-up copies the value
/// out and checks that its pages were there all the while; if not, it is a miss. So such a cache can never be the reason for an OOM kill, and may be as large
/// as memory that would otherwise be idle.
///
/// Thread-safe. Look-ups take no lock and make no system call; writers exclude each other. What an orchestrator sees: resident memory and
/// `anon` go on counting these pages until they are taken, the working set and `MemAvailable` don't; but once the
/// kernel reclaims, pages that were read since move from `inactive_file` to `active_file`, which the working set counts.
///
/// A forked child sees an empty cache and can put nothing in; caches of its own it should use on one thread. Where the kernel refuses (before 4.14, under `mlockall`) it is an
/// ordinary cache, of 64 MiB unless a limit is set; see `isVolatile`.
public final class VolatileCache<Key: Hashable & Sendable, Value: VolatileStorable>: VolatilePurgeable, TagPurgeable {
    public let name: String
    public let rebuildCost: RebuildCost

    @usableFromInline let store: VolatileStore
    /// Age at which a value counts as missing, unless the value was inserted with a time to live of its own; `nil` for ever.
    public let timeToLive: Duration?
    @usableFromInline let scratch = ScratchPool()
    let loads = SingleFlight<Key, Value>()
    let taggedLoads = TaggedLoads<Key>()
    let loadRecord = LoadRecord()
    private let idleTime: Duration

    /// - Parameters:
    ///   - name: how reports name it.
    ///   - limit: bound of the memory it takes, its index (some 20 bytes an entry) apart; `nil` for whatever would otherwise be idle. A few
    ///     pages it may always have.
    ///   - rebuildCost: what it costs to make a value again.
    ///   - timeToLive: age at which a value counts as missing; `nil` for ever.
    ///   - idleTime: without a limit, memory is given back in which nothing was asked for so long.
    ///   - allowsHugePages: whether the kernel may use huge pages once the cache is larger than 32 MiB.
    /// - Precondition: `Key` is trivial, a `String` or `VolatileStorable`: keys are kept beside their values.
    public convenience init(
        _ name: String, limit: ByteCount? = nil, rebuildCost: RebuildCost = .cheap, timeToLive: Duration? = nil,
        idleTime: Duration = .seconds(900), allowsHugePages: Bool = true
    ) {
        self.init(
            name, limit: limit, rebuildCost: rebuildCost, timeToLive: timeToLive, idleTime: idleTime, allowsHugePages: allowsHugePages,
            isVolatile: VolatileMemory.isSupported, time: .running)
    }

    package init(
        _ name: String, limit: ByteCount? = nil, rebuildCost: RebuildCost = .cheap, timeToLive: Duration? = nil,
        idleTime: Duration = .seconds(900), allowsHugePages: Bool = true, isVolatile: Bool, time: Timekeeper
    ) {
        if let problem = VolatileKey<Key>.problem { preconditionFailure("VolatileCache \(name): \(problem)") }
        self.name = name
        self.rebuildCost = rebuildCost
        self.timeToLive = timeToLive
        self.idleTime = idleTime
        store = VolatileStore(limit: limit?.bytes, allowsHugePages: allowsHugePages, isVolatile: isVolatile, time: time)
    }

    // MARK: Values

    /// The value under `key`, which thereby counts as used; `nil` if there is none, its time has passed or the kernel took it.
    ///
    /// - Complexity: O(1) and a copy of the value; no lock, no system call, no allocation but the value's own.
    @inlinable
    public func value(forKey key: Key) -> Value? { value(forKey: key, isCounted: true) }

    /// - Parameter isCounted: whether it is a look-up of its own, and a use.
    @inlinable
    func value(forKey key: Key, isCounted: Bool) -> Value? {
        read(key, isCounted: isCounted) { store, found in
            do {
                return try Value.decoded(byteCount: found.count) { store.copy(found, to: $0) }.map { .good($0) } ?? .lost
            } catch {
                return .unreadable
            }
        }
    }

    /// Calls `body` with the bytes of the value under `key`: a copy put together for it, good until it returns.
    ///
    /// - Complexity: O(1) and a copy of the bytes; no lock, no system call, and for values up to 256 KiB no allocation.
    /// - Returns: what `body` returns; `nil` on a miss.
    @inlinable
    public func withBytes<R, E: Error>(forKey key: Key, _ body: (RawSpan) throws(E) -> R) throws(E) -> R? {
        let lent: (buffer: ScratchPool.Buffer, count: Int)? = read(key) { [scratch] store, found in
            let buffer = scratch.take(found.count)
            if store.copy(found, to: UnsafeMutableRawBufferPointer(start: buffer.start, count: found.count)) { return .good((buffer, found.count)) }
            scratch.give(buffer)
            return .lost
        }
        guard let lent else { return nil }
        defer { scratch.give(lent.buffer) }
        return try body(UnsafeRawBufferPointer(start: lent.buffer.start, count: lent.count).bytes)
    }

    /// Keeps `value` under `key`, replacing what was there.
    ///
    /// - Parameters:
    ///   - value: what is kept, as bytes.
    ///   - key: what it is looked up by.
    ///   - tags: names under which `purge(tag:)` finds it; at most 255.
    ///   - timeToLive: age at which the value counts as missing, in place of the cache's own.
    /// - Returns: false, and nothing has changed, if it cannot be encoded, is larger than the limit or than 4 GiB, if its key is larger
    ///   than a page, or if there is no memory for it and the cache has nothing to evict.
    @inlinable
    @discardableResult
    public func insert(_ value: Value, forKey key: Key, tags: [String] = [], timeToLive: Duration? = nil) -> Bool {
        insert(value, forKey: key, tags: tags, timeToLive: timeToLive, of: nil)
    }

    @inlinable
    @discardableResult
    func insert(_ value: Value, forKey key: Key, tags: [String], timeToLive: Duration? = nil, of load: TaggedLoad?) -> Bool {
        let tags = tags.isEmpty ? [] : tags.map { Self.number(of: $0) }
        let isKept = try? value.withEncodedBytes { bytes in
            withKey(key) { hash, keyBytes, isSame in
                store.insert(hash, keyBytes, bytes, timeToLive: timeToLive ?? self.timeToLive, tags: tags, of: load, isSame: isSame)
            }
        }
        return isKept ?? false
    }

    /// Takes out and returns the value under `key`; `nil` if there was none, or if the kernel took it.
    ///
    /// Of several callers at once one gets the value.
    @discardableResult
    public func removeValue(forKey key: Key) -> Value? {
        let value: Value?? = withKey(key) { hash, keyBytes, isSame in
            while let found = store.find(hash, keyBytes, isSame: isSame) {
                // Read before, as decoding is the application's code and not to run under the lock.
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
            store.noteMiss()
            return nil
        }
        return value ?? nil
    }

    /// Returns whether there is a value under `key`; asking is no use of the value. The kernel may take the value right after that.
    public func contains(_ key: Key) -> Bool {
        withKey(key) { hash, keyBytes, isSame in store.find(hash, keyBytes, isSame: isSame) != nil } ?? false
    }

    /// Takes out everything and gives its memory back.
    public func removeAll() { store.removeAll() }

    /// Takes out every value with that tag. A load under way with that tag is not kept, and whoever asks for its key from now on loads anew.
    ///
    /// Nobody finds such a value any more; its bytes stay in the log until their stretch of it is given back. What must not be anywhere at all belongs into a
    /// `Secret`.
    ///
    /// - Returns: number of values taken out.
    /// - Complexity: O(bytes) in the stretches of the log that hold values with that tag, or one of 63 like it. There is no index of tags: it would cost every
    ///   entry as much memory again as its place in the index does, and would have to be told of what the kernel takes.
    @discardableResult
    public func purge(tag: String) -> Int {
        for key in taggedLoads.revoke(tag) { loads.forget(key) }
        return store.purge(tag: Self.number(of: tag))
    }

    /// Number of values with that tag; such as the kernel has taken are not counted.
    ///
    /// - Complexity: as of `purge(tag:)`.
    public func count(tag: String) -> Int { store.count(tag: Self.number(of: tag)) }

    /// Calls `listener` with the key of each entry that leaves and why, on the thread that made it leave, after the lock.
    ///
    /// Values are not handed over, since their bytes may be gone; for the same reason entries that the kernel took leave without notice.
    public func onRemoval(_ listener: @escaping @Sendable (Key, RemovalReason) -> Void) {
        store.listen { bytes, reason in
            if let key = VolatileKey<Key>.key(bytes) { listener(key, reason) }
        }
    }

    // MARK: Size

    /// Bound of the memory it takes; `nil` for whatever would otherwise be idle. Lowering it evicts at once, oldest first, but for what is hot.
    public var limit: ByteCount? {
        get { store.limit.map { ByteCount($0) } }
        set { store.setLimit(newValue?.bytes) }
    }

    /// Whether the kernel may take its memory. If not, it is an ordinary cache that only evicts.
    public var isVolatile: Bool { store.isVolatile }

    /// Number of entries; such as the kernel has taken are counted until that is found out.
    public var count: Int { statistics.count }

    /// Bytes of the entries, with keys and headers; `heldBytes` is the memory they lie in.
    public var byteCount: Int { statistics.byteCount }

    /// What the cache has done and holds.
    public var statistics: CacheStatistics {
        var statistics = store.statistics
        loadRecord.tell(&statistics)
        return statistics
    }

    // MARK: Purgeable

    public var heldBytes: Int { store.mapped }
    public var volatileBytes: Int { store.volatileBytes }

    /// Gives back at least `target` bytes of memory, oldest first, or everything. Allocates nothing.
    public func release(_ target: Int) -> Int {
        scratch.clear()
        return store.release(target)
    }

    /// Buffers in which values are put together for `withBytes`.
    public func dropSpares() -> Int { scratch.clear() }
    public func restrict(to limit: ByteCount?) { store.restrict(to: limit?.bytes) }
    public func attach(volatile meter: ChargeMeter) { store.attach(meter) }
    /// Its memory is declared on the meter for volatile memory.
    public func attach(_ meter: ChargeMeter) -> Bool { true }
    public func noticeDrops() -> Int { store.noticeDrops() }
    public func giveBackIdle() { if store.limit == nil { store.turnOver(olderThan: idleTime) } }
}
