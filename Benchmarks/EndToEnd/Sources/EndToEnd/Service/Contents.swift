import Foundation
import Plimsoll
import PlimsollLifecycle

/// Cached contents by id: the one thing in which variants differ.
protocol Contents: Sendable {
    /// Returns the bytes of `id`, and true if they were cached. Makes and keeps missing bytes.
    func bytes(_ id: Int, make: @escaping @Sendable (Int) -> [UInt8]) async throws -> (bytes: [UInt8], isHit: Bool)
}

/// Contents on the heap.
struct HeapContents: Contents {
    let cache: PurgeableCache<Int, [UInt8]>

    /// An array's header and an entry of the cache come to some 100 bytes.
    init(_ name: String, limit: ByteCount?, rebuildCost: RebuildCost) {
        cache = PurgeableCache(name, limit: limit, rebuildCost: rebuildCost, cost: { $1.count + 96 })
    }

    func bytes(_ id: Int, make: @escaping @Sendable (Int) -> [UInt8]) async throws -> (bytes: [UInt8], isHit: Bool) {
        if let bytes = cache.value(forKey: id) { return (bytes, true) }
        return (try await cache.value(forKey: id) { make(id) }, false)
    }
}

/// Contents in memory that the kernel may reclaim.
struct VolatileContents: Contents {
    let cache: VolatileCache<Int, [UInt8]>

    func bytes(_ id: Int, make: @escaping @Sendable (Int) -> [UInt8]) async throws -> (bytes: [UInt8], isHit: Bool) {
        if let bytes = cache.value(forKey: id) { return (bytes, true) }
        return (try await cache.value(forKey: id) { make(id) }, false)
    }
}

/// Contents in Foundation's cache.
// Unchecked: NSCache is thread-safe according to the documentation, but its type does not say so.
struct FoundationContents: Contents, @unchecked Sendable {
    private let cache = NSCache<NSNumber, Box>()

    private final class Box {
        let bytes: [UInt8]
        init(_ bytes: [UInt8]) { self.bytes = bytes }
    }

    init(limit: ByteCount) { cache.totalCostLimit = limit.bytes }

    func bytes(_ id: Int, make: @escaping @Sendable (Int) -> [UInt8]) async throws -> (bytes: [UInt8], isHit: Bool) {
        let key = NSNumber(value: id)
        if let box = cache.object(forKey: key) { return (box.bytes, true) }
        let bytes = make(id)
        cache.setObject(Box(bytes), forKey: key, cost: bytes.count + 96)
        return (bytes, false)
    }
}
