import Plimsoll

/// A cache of bytes on the heap or in volatile memory, to compare the two in a service.
enum ByteCache: Sendable {
    case heap(PurgeableCache<UInt64, [UInt8]>)
    case volatile(VolatileCache<UInt64, [UInt8]>)

    /// Creates a cache without a limit. A heap cache reports the memory cost of entries.
    init(_ name: String, isVolatile: Bool) {
        self =
            isVolatile ? .volatile(VolatileCache(name)) : .heap(PurgeableCache(name) { _, bytes in bytes.count + 96 })
    }

    var purgeable: any Purgeable {
        switch self {
        case .heap(let cache): cache
        case .volatile(let cache): cache
        }
    }

    func value(forKey key: UInt64) -> [UInt8]? {
        switch self {
        case .heap(let cache): cache.value(forKey: key)
        case .volatile(let cache): cache.value(forKey: key)
        }
    }

    @discardableResult
    func insert(_ bytes: [UInt8], forKey key: UInt64) -> Bool {
        switch self {
        case .heap(let cache): cache.insert(bytes, forKey: key)
        case .volatile(let cache): cache.insert(bytes, forKey: key)
        }
    }

    var byteCount: Int { statistics.byteCount }

    var statistics: CacheStatistics {
        switch self {
        case .heap(let cache): cache.statistics
        case .volatile(let cache): cache.statistics
        }
    }

    /// Returns the bytes of memory found reclaimed by the kernel since the last call; always 0 for the heap.
    func noticeDrops() -> Int {
        switch self {
        case .heap: 0
        case .volatile(let cache): cache.noticeDrops()
        }
    }
}
