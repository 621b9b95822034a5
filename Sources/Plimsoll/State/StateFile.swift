/// The layout of a state in a file: a header, a record with the whole state, and a record for each change appended
/// since.
///
/// All numbers are little-endian. Header: magic (8 bytes), version (4), checksum of the other 20 bytes (4), a random
/// number (8). Record: marker (4), checksum of the rest of the record's header, of the file's random number and of
/// the record's offset (4), length (8), checksum of the bytes (4), number (4), the bytes. The random number and the
/// offset prevent bytes inside a record from passing for a record, even if they come from a state file.
///
/// The state is one file, so that a single rename replaces the whole state together with the changes.
package struct StateFile: Equatable {
    /// The version this code writes, and the newest that this code reads.
    package static let version: UInt32 = 1
    package static let headerLength = 24, recordHeaderLength = 24
    private static let magic: [UInt8] = Array("PLMSTATE".utf8)
    private static let marker: UInt32 = 0x4345_5250

    /// The file's random number.
    package var nonce: UInt64
    /// The byte ranges of the records: the whole state, then the changes.
    package var records: [Range<Int>] = []
    /// The end of the last complete record. Bytes after the end are the rest of an interrupted append.
    package var end = 0

    /// Total bytes of the changes, including their headers.
    package var journalLength: Int { end - (records.first?.upperBound ?? end) }

    // MARK: - Writing

    /// Returns the header of a file.
    package static func header(nonce: UInt64, version: UInt32 = Self.version) -> [UInt8] {
        var sum = CRC32C()
        magic.withUnsafeBytes { sum.add($0) }
        sum.add(version)
        sum.add(nonce)
        return magic + bytes(version) + bytes(sum.value) + bytes(nonce)
    }

    /// Returns the header of the record with that number, to be placed `offset` bytes from the start of the file.
    package static func recordHeader(_ payload: [UInt8], number: UInt32, at offset: Int, nonce: UInt64) -> [UInt8] {
        let rest = bytes(UInt64(payload.count)) + bytes(CRC32C.checksum(payload)) + bytes(number)
        return bytes(marker) + bytes(headerChecksum(rest[...], at: offset, nonce: nonce)) + rest
    }

    private static func headerChecksum(_ rest: ArraySlice<UInt8>, at offset: Int, nonce: UInt64) -> UInt32 {
        var sum = CRC32C()
        rest.withUnsafeBytes { sum.add($0) }
        sum.add(nonce)
        sum.add(UInt64(offset))
        return sum.value
    }

    private static func bytes(_ number: some FixedWidthInteger) -> [UInt8] {
        withUnsafeBytes(of: number.littleEndian) { Array($0) }
    }

    // MARK: - Reading

    /// The reason why a file holds no usable state.
    package struct Damage: Error, Hashable, CustomStringConvertible {
        package var description: String
        package init(description: String) { self.description = description }
    }

    /// Finds the records of a file.
    ///
    /// Ignores a last record that an interrupted append left incomplete. Any other difference from what was written
    /// is damage.
    ///
    /// - Complexity: O(n).
    package init(parsing file: [UInt8]) throws(Damage) {
        guard file.count >= 8 else { throw Damage(description: "it was cut short to \(file.count) bytes") }
        guard Array(file[..<8]) == Self.magic else { throw Damage(description: "it is no state file") }
        guard file.count >= Self.headerLength else {
            throw Damage(description: "it was cut short to \(file.count) bytes")
        }
        let version: UInt32 = Self.number(file, 8)
        guard version <= Self.version else {
            throw Damage(
                description:
                    "it is from a newer version: format \(version), and this program reads up to \(Self.version)")
        }
        nonce = Self.number(file, 16)
        guard Self.header(nonce: nonce, version: version) == Array(file[..<Self.headerLength]) else {
            throw Damage(description: "the checksum of its header is wrong")
        }
        end = Self.headerLength
        while end < file.count {
            switch Self.record(file, at: end, nonce: nonce) {
            case .whole(let range, let number) where number == records.count:
                records.append(range)
                end = range.upperBound
            case .whole(_, let number):
                throw Damage(description: "record \(number) stands in the place of record \(records.count)")
            case .cutShort(let length) where records.isEmpty:
                throw Damage(
                    description: "it was cut short to \(file.count) bytes of \(end + Self.recordHeaderLength + length)")
            case .wrong where records.isEmpty: throw Damage(description: "its checksum is wrong")
            case .cutShort, .wrong:
                guard !Self.hasRecord(file, after: end, nonce: nonce) else {
                    throw Damage(description: "record \(records.count) is damaged, and others follow it")
                }
                return
            }
        }
        guard !records.isEmpty else { throw Damage(description: "it was cut short to its header") }
    }

    private enum Record {
        case whole(Range<Int>, number: UInt32)
        case cutShort(length: Int)
        case wrong
    }

    private static func record(_ file: [UInt8], at offset: Int, nonce: UInt64) -> Record {
        guard hasHeader(file, at: offset, nonce: nonce) else { return .wrong }
        let length: UInt64 = number(file, offset + 8), checksum: UInt32 = number(file, offset + 16)
        let start = offset + recordHeaderLength
        guard length <= file.count - start else { return .cutShort(length: Int(min(length, 1 << 60))) }
        let range = start..<start + Int(length)
        var sum = CRC32C()
        file.withUnsafeBytes { sum.add(UnsafeRawBufferPointer(rebasing: $0[range])) }
        return sum.value == checksum ? .whole(range, number: number(file, offset + 20)) : .wrong
    }

    private static func hasHeader(_ file: [UInt8], at offset: Int, nonce: UInt64) -> Bool {
        guard offset + recordHeaderLength <= file.count, number(file, offset) == marker else { return false }
        return number(file, offset + 4)
            == headerChecksum(file[(offset + 8)..<(offset + recordHeaderLength)], at: offset, nonce: nonce)
    }

    /// Returns true if a record begins after `offset`. Then the record at `offset` was once complete, since only one
    /// append is under way at a time.
    private static func hasRecord(_ file: [UInt8], after offset: Int, nonce: UInt64) -> Bool {
        guard file.count - recordHeaderLength > offset else { return false }
        return (offset + 1...file.count - recordHeaderLength).contains { hasHeader(file, at: $0, nonce: nonce) }
    }

    private static func number<Number: FixedWidthInteger>(_ file: [UInt8], _ offset: Int) -> Number {
        file.withUnsafeBytes { Number(littleEndian: $0.loadUnaligned(fromByteOffset: offset, as: Number.self)) }
    }
}

/// The checksum CRC-32C (Castagnoli), computed eight bytes at a step.
///
/// In data shorter than 2^31 bits, detects every error of one, two or three bits and every burst of up to 32 bits.
/// Misses one in 2^32 of all other errors.
package struct CRC32C {
    private var register: UInt32 = .max

    /// `tables[256 * n + byte]`: the effect of a byte on the register when `n` more bytes follow.
    private static let tables: [UInt32] = {
        var tables = [UInt32](repeating: 0, count: 8 * 256)
        for byte in 0..<256 {
            var value = UInt32(byte)
            for _ in 0..<8 { value = value & 1 == 1 ? value >> 1 ^ 0x82f6_3b78 : value >> 1 }
            tables[byte] = value
        }
        for index in 256..<tables.count {
            tables[index] = tables[index - 256] >> 8 ^ tables[Int(tables[index - 256] & 255)]
        }
        return tables
    }()

    package init() {}

    /// The checksum of all bytes added so far.
    package var value: UInt32 { ~register }

    package mutating func add(_ bytes: UnsafeRawBufferPointer) {
        var register = register
        var offset = 0
        Self.tables.withUnsafeBufferPointer { tables in
            while offset + 8 <= bytes.count {
                let word =
                    UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
                    ^ UInt64(register)
                register = 0
                for step in 0..<8 {
                    register ^= tables[256 * (7 - step) + Int(truncatingIfNeeded: word >> UInt64(8 * step) & 255)]
                }
                offset += 8
            }
            while offset < bytes.count {
                register = tables[Int((register ^ UInt32(bytes[offset])) & 255)] ^ register >> 8
                offset += 1
            }
        }
        self.register = register
    }

    package mutating func add(_ number: some FixedWidthInteger) {
        withUnsafeBytes(of: number.littleEndian) { add($0) }
    }

    package static func checksum(_ bytes: [UInt8]) -> UInt32 {
        var sum = CRC32C()
        bytes.withUnsafeBytes { sum.add($0) }
        return sum.value
    }
}

/// FNV-1a with 64 bits (Fowler, Noll, Vo). Detects accidents and spreads names; no defence against malice.
package struct FNV1a: Sendable {
    /// The hash of all bytes added so far.
    package private(set) var hash: UInt64 = 0xcbf2_9ce4_8422_2325

    package init() {}

    package mutating func add(_ byte: UInt8) { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01b3 }

    /// Returns the hash of `bytes`.
    package static func hash(_ bytes: some Sequence<UInt8>) -> UInt64 {
        bytes.reduce(into: FNV1a()) { $0.add($1) }.hash
    }
}
