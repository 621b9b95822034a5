/// Encodes keys as bytes, because keys are stored beside their values. Trivial types are stored as they lie in memory,
/// text as UTF-8. Other types encode themselves.
@usableFromInline
enum VolatileKey<Key: Hashable> {
    /// The reason why the type cannot be a key; `nil` if the type can.
    static var problem: String? {
        if _isPOD(Key.self) || Key.self == String.self || Key.self is any VolatileStorable.Type { return nil }
        return """
            keys are kept as bytes beside their values, and \(Key.self) is neither trivial (numbers, UUID, structures of them) nor a String. \
            Let it conform to VolatileStorable
            """
    }

    /// Calls `body` with the bytes of `key`. Equal keys may have different bytes (padding, Unicode's equivalent forms),
    /// but never different hashes.
    @inlinable
    static func withBytes<R>(_ key: Key, _ body: (UnsafeRawBufferPointer) -> R) -> R? {
        if _isPOD(Key.self) { return withUnsafeBytes(of: key) { body($0) } }
        if Key.self == String.self {
            var text = unsafeBitCast(key, to: String.self)
            return text.withUTF8 { body(UnsafeRawBufferPointer($0)) }
        }
        guard let storable = key as? any VolatileStorable else { return nil }
        return try? storable.withEncodedBytes(body)
    }

    /// Returns the key that `bytes` encode; `nil` if they encode none.
    @usableFromInline
    static func key(_ bytes: UnsafeRawBufferPointer) -> Key? {
        if _isPOD(Key.self) { return bytes.count == MemoryLayout<Key>.size ? bytes.loadUnaligned(as: Key.self) : nil }
        if Key.self == String.self { return unsafeBitCast(String(decoding: bytes, as: UTF8.self), to: Key.self) }
        guard let type = Key.self as? any VolatileStorable.Type else { return nil }
        return decode(type, bytes) as? Key
    }

    private static func decode<T: VolatileStorable>(_ type: T.Type, _ bytes: UnsafeRawBufferPointer) -> T? { try? T(decoding: bytes.bytes) }
}
