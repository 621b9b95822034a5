/// The result of restoring a snapshot.
public struct CacheRestoration: Sendable, Hashable {
    /// Number of entries inserted.
    public var restored = 0
    /// Number of entries that had expired, had no room, or could not be decoded by the present types.
    public var skipped = 0
    /// The reason why there was nothing to restore; `nil` if there was.
    public var reason: String?
}

extension PurgeableCache where Key: VolatileStorable, Value: VolatileStorable {
    private static var version: UInt32 { 1 }

    /// Writes the contents to `store`, so that the next process starts warm. The hottest entries are chosen first,
    /// with their costs, tags and remaining time. `FileStateStore` replaces the file as a whole, with a checksum.
    ///
    /// Visits one shard at a time and does not count as a use. Changes made meanwhile may or may not be included. An
    /// entry whose key or value takes 4 GiB or more is left out.
    ///
    /// - Parameters:
    ///   - store: the store to write to.
    ///   - name: the name of the snapshot in the store.
    ///   - bytes: the approximate maximum number of bytes to write.
    /// - Returns: the number of entries written.
    /// - Throws: errors of `store` or of a value's `encode(into:)`; nothing has changed then.
    @discardableResult
    public func save(to store: any StateStore, as name: String, atMost bytes: ByteCount = .mebibytes(64)) throws -> Int
    {
        let now = now
        var encoder = VolatileEncoder(), records: [[UInt8]] = [], size = 0
        for copy in entries(.max, order: { $0.order().reversed() }) where size < bytes.bytes {
            var record = VolatileEncoder()
            guard try copy.key.withEncodedBytes({ Self.append($0, to: &record) }),
                try copy.value.withEncodedBytes({ Self.append($0, to: &record) })
            else { continue }
            record.append(Int64(copy.cost))
            record.append(copy.expires == .max ? Int64.max : copy.expires - now)
            record.append(UInt32(copy.tags.count))
            for tag in copy.tags { Array(tag.utf8).withUnsafeBytes { _ = Self.append($0, to: &record) } }
            size += record.bytes.count
            records.append(record.bytes)
        }
        encoder.append(Self.version)
        encoder.append(time.wall().inNanoseconds)
        encoder.append(UInt64(records.count))
        // Coldest first, the order in which they will be inserted again.
        for record in records.reversed() { encoder.append(contentsOf: record) }
        try store.write(name, encoder.bytes)
        return records.count
    }

    /// Inserts the entries that `save` wrote under `name`, as far as there is room. A key that already has a value
    /// keeps that value. Time that has passed since the save counts.
    ///
    /// - Throws: errors of `store` on reading. A snapshot of a later version restores nothing, and a truncated
    ///   one the entries up to the cut; both set `reason`.
    @discardableResult
    public func restore(from store: any StateStore, as name: String) throws -> CacheRestoration {
        var restoration = CacheRestoration()
        guard let bytes = try store.read(name) else {
            restoration.reason = "no snapshot is stored under \"\(name)\""
            return restoration
        }
        var reader = SnapshotReader(bytes)
        guard let version = reader.number(UInt32.self), version == Self.version, let saved = reader.number(Int64.self),
            let count = reader.number(UInt64.self)
        else {
            restoration.reason = "the data stored under \"\(name)\" is not a snapshot of this version (\(Self.version))"
            return restoration
        }
        // A time before 1970 is no time of day; the difference could not be computed either.
        let away = max(0, time.wall().inNanoseconds - max(0, saved))
        for _ in 0..<count {
            guard let key = reader.bytes(), let value = reader.bytes(), let cost = reader.number(Int64.self),
                let left = reader.number(Int64.self),
                let tags = reader.texts()
            else {
                restoration.reason = "the snapshot under \"\(name)\" is truncated"
                break
            }
            let isOver = left != .max && left <= away
            if !isOver, put(key, value, Int(cost), tags, left == .max ? nil : .nanoseconds(left - away)) {
                restoration.restored += 1
            } else {
                restoration.skipped += 1
            }
        }
        return restoration
    }

    private func put(
        _ key: ArraySlice<UInt8>, _ value: ArraySlice<UInt8>, _ cost: Int, _ tags: [String], _ left: Duration?
    ) -> Bool {
        guard let key = Self.decode(Key.self, key), !contains(key), let value = Self.decode(Value.self, value) else {
            return false
        }
        // Not as an insert: a value that came while this one was decoded is newer.
        return keep(value, key, cost, tags, LoadOrigin(), timeToLive: left)
    }

    private static func decode<T: VolatileStorable>(_ type: T.Type, _ bytes: ArraySlice<UInt8>) -> T? {
        try? T.decoded(byteCount: bytes.count) { target in
            bytes.withUnsafeBytes { target.copyMemory(from: $0) }
            return true
        }
    }

    /// Appends the length and the bytes. Returns false, and appends nothing, if the length exceeds 32 bits.
    private static func append(_ bytes: UnsafeRawBufferPointer, to encoder: inout VolatileEncoder) -> Bool {
        guard let count = UInt32(exactly: bytes.count) else { return false }
        encoder.append(count)
        encoder.append(contentsOf: bytes)
        return true
    }
}

/// Reads a snapshot's bytes in order. Returns `nil` if too few bytes are left.
private struct SnapshotReader {
    private var rest: ArraySlice<UInt8>

    init(_ bytes: [UInt8]) { rest = bytes[...] }

    mutating func number<T: FixedWidthInteger & BitwiseCopyable>(_ type: T.Type) -> T? {
        guard rest.count >= MemoryLayout<T>.size else { return nil }
        defer { rest = rest.dropFirst(MemoryLayout<T>.size) }
        return rest.withUnsafeBytes { $0.loadUnaligned(as: T.self) }
    }

    mutating func bytes() -> ArraySlice<UInt8>? {
        guard let count = number(UInt32.self), rest.count >= Int(count) else { return nil }
        defer { rest = rest.dropFirst(Int(count)) }
        return rest.prefix(Int(count))
    }

    mutating func texts() -> [String]? {
        guard let count = number(UInt32.self) else { return nil }
        var texts: [String] = []
        for _ in 0..<count {
            guard let text = bytes() else { return nil }
            texts.append(String(decoding: text, as: UTF8.self))
        }
        return texts
    }
}
