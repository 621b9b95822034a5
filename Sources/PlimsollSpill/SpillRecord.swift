#if Spill
import Plimsoll

/// What lies in a store under one key: a value with all that is needed to tell it from anything else that may lie there.
///
///     PLSP | format 1 byte | version 4 | generation 8 | length of key 4 | length of value 4 | CRC-32C of all but itself 4 | key | value
///
/// Numbers are little-endian.
struct SpillRecord {
    /// Why bytes are not the record that was asked for.
    enum Problem: Error { case damaged, otherVersion, otherKey }

    static let headerByteCount = 29
    private static let mark: [UInt8] = Array("PLSP".utf8)
    private static let format: UInt8 = 1

    /// Of what the values are written down with; the application's.
    var version: UInt32
    var generation: UInt64

    func bytes(_ key: [UInt8], _ value: [UInt8]) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(Self.headerByteCount + key.count + value.count)
        bytes.append(contentsOf: Self.mark)
        bytes.append(Self.format)
        Self.append(version, to: &bytes)
        Self.append(generation, to: &bytes)
        Self.append(UInt32(key.count), to: &bytes)
        Self.append(UInt32(value.count), to: &bytes)
        Self.append(Self.sum(bytes[...], key[...], value[...]), to: &bytes)
        bytes.append(contentsOf: key)
        bytes.append(contentsOf: value)
        return bytes
    }

    /// The value in `bytes`, if they are whole, of this version and generation, and of `key`.
    func value(of key: [UInt8], in bytes: [UInt8]) throws(Problem) -> [UInt8] {
        guard bytes.count >= Self.headerByteCount, bytes.starts(with: Self.mark), bytes[4] == Self.format else { throw .damaged }
        let keyCount = Int(Self.number(UInt32.self, at: 17, bytes)), valueCount = Int(Self.number(UInt32.self, at: 21, bytes))
        let body = bytes.dropFirst(Self.headerByteCount)
        guard body.count == keyCount + valueCount else { throw .damaged }
        let (foundKey, value) = (body.prefix(keyCount), body.dropFirst(keyCount))
        guard Self.number(UInt32.self, at: 25, bytes) == Self.sum(bytes.prefix(25), foundKey, value) else { throw .damaged }
        guard Self.number(UInt32.self, at: 5, bytes) == version, Self.number(UInt64.self, at: 9, bytes) == generation else { throw .otherVersion }
        guard foundKey.elementsEqual(key) else { throw .otherKey }
        return Array(value)
    }

    /// Under which name a store keeps it: letters that every store takes, and few. Two keys of one name make each other miss, no more.
    func name(of key: [UInt8], prefix: String) -> String {
        // FNV-1a (Fowler, Noll, Vo).
        var hash: UInt64 = 0xcbf2_9ce4_8422_2325
        for byte in key { hash = (hash ^ UInt64(byte)) &* 0x0000_0100_0000_01b3 }
        return "\(prefix):\(String(generation, radix: 36)):\(String(hash, radix: 36))\(String(CRC32C.checksum(key), radix: 36))"
    }

    private static func sum(_ parts: ArraySlice<UInt8>...) -> UInt32 {
        var sum = CRC32C()
        for part in parts { part.withUnsafeBytes { sum.add($0) } }
        return sum.value
    }

    private static func append(_ number: some FixedWidthInteger, to bytes: inout [UInt8]) {
        withUnsafeBytes(of: number.littleEndian) { bytes.append(contentsOf: $0) }
    }

    private static func number<T: FixedWidthInteger & BitwiseCopyable>(_ type: T.Type, at offset: Int, _ bytes: [UInt8]) -> T {
        T(littleEndian: bytes.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: offset, as: T.self) })
    }
}
#endif
