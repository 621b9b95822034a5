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
        guard file.count >= 8 else { throw Damage(description: "the file is truncated to \(file.count) bytes") }
        guard Array(file[..<8]) == Self.magic else { throw Damage(description: "the file is not a state file") }
        guard file.count >= Self.headerLength else {
            throw Damage(description: "the file is truncated to \(file.count) bytes")
        }
        let version: UInt32 = Self.number(file, 8)
        guard version <= Self.version else {
            throw Damage(
                description:
                    "the file has the newer format \(version); this program reads up to \(Self.version)")
        }
        nonce = Self.number(file, 16)
        guard Self.header(nonce: nonce, version: version) == Array(file[..<Self.headerLength]) else {
            throw Damage(description: "the checksum of the header is wrong")
        }
        end = Self.headerLength
        while end < file.count {
            switch Self.record(file, at: end, nonce: nonce) {
            case .whole(let range, let number) where number == records.count:
                records.append(range)
                end = range.upperBound
            case .whole(_, let number):
                throw Damage(description: "record \(number) is in the place of record \(records.count)")
            case .cutShort(let length) where records.isEmpty:
                throw Damage(
                    description:
                        "the file is truncated to \(file.count) bytes of \(end + Self.recordHeaderLength + length)")
            case .wrong where records.isEmpty: throw Damage(description: "the checksum is wrong")
            case .cutShort, .wrong:
                guard !Self.hasRecord(file, after: end, nonce: nonce) else {
                    throw Damage(description: "record \(records.count) is damaged, and others follow it")
                }
                return
            }
        }
        guard !records.isEmpty else { throw Damage(description: "the file is truncated to its header") }
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
