import Plimsoll

/// The layout of a black box: a flight recorder in a mapped file of fixed size that outlives the process.
///
/// A header says which process writes. Rings of records of fixed size follow. Each record begins with a checksum of its
/// other bytes and a sequence number, so a record that a kill or a power failure has torn is told from a whole one. All
/// numbers are little-endian.
enum BoxLayout {
    static let magic: UInt64 = 0x584f_424d_494c_5031  // "1PLIMBOX"
    static let version: UInt32 = 3

    /// A ring of records.
    struct Ring {
        var offset: Int
        var count: Int
        var size: Int

        var end: Int { offset + count * size }
        /// Offset in the file of the record with that sequence number, the first of which is 1.
        func place(_ sequence: UInt32) -> Int { offset + Int((sequence &- 1) % UInt32(count)) * size }
    }

    /// Bytes of the header: fixed numbers, then texts.
    static let headerSize = 2048
    /// Offset of the state (4 bytes), and of the count of kills at the next start (4 bytes, one more than the count).
    static let state = 2048, killsAtNextStart = 2052
    /// The reading of each turn.
    static let turns = Ring(offset: 4096, count: 1792, size: 80)
    /// The reading of each second that left least memory available.
    static let seconds = Ring(offset: turns.end, count: 600, size: 80)
    /// The reports of actions.
    static let reports = Ring(offset: seconds.end, count: 256, size: 128)
    /// Tables of the registered purgeables, one every five seconds.
    static let tables = Ring(offset: reports.end, count: 12, size: 2048)
    /// The latest tables. Two, so that a kill while one is written leaves the other.
    static let latest = Ring(offset: tables.end, count: 2, size: 2048)
    /// The latest censuses of the heap. Two, as above.
    static let censuses = Ring(offset: latest.end, count: 2, size: 2048)
    /// Size of the file in bytes.
    static let size = censuses.end

    /// Bytes of the text in a report, and of the name in a row of a table.
    static let reportText = 80, holderName = 52
    /// Rows of a table: the purgeables that hold most.
    static let rows = 31
    static let rowSize = 64
    /// Rows of a census: the largest types. Bytes of a row, and of the name in it.
    static let types = 15
    static let typeRowSize = 128, typeName = 112
}

/// The checksum of a record: each step is a bijection of 64 bits, so any change of one word is noticed, but for the last
/// fold to 32 bits.
///
/// No CRC-32C: its table of 8 KiB is cold at each turn, and costs more than the rest of the record.
enum BoxSum {
    /// Returns the sum of all bytes but the first four. The size is a multiple of eight.
    static func of(_ record: UnsafeRawBufferPointer) -> UInt32 {
        var hash = UInt64(UInt32(littleEndian: record.loadUnaligned(fromByteOffset: 4, as: UInt32.self)))
        var offset = 8
        while offset < record.count {
            let word = UInt64(littleEndian: record.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
            hash = (hash ^ word) &* 0x9e37_79b9_7f4a_7c15
            hash ^= hash >> 32
            offset += 8
        }
        // Not zero for zeros, which are a record that was never written.
        return UInt32(truncatingIfNeeded: hash ^ hash >> 17) ^ .max
    }
}

/// Writes the fields of one record, in order.
struct BoxWriter {
    private let start: UnsafeMutableRawPointer
    private let size: Int
    private(set) var offset = 4

    /// Begins a record of `size` bytes; the first four receive the checksum.
    init(_ start: UnsafeMutableRawPointer, size: Int) { (self.start, self.size) = (start, size) }

    mutating func put<Number: FixedWidthInteger>(_ number: Number) {
        start.storeBytes(of: number.littleEndian, toByteOffset: offset, as: Number.self)
        offset += MemoryLayout<Number>.size
    }

    /// Writes zeros up to that offset of the record.
    mutating func skip(to place: Int) {
        while offset < place { put(UInt8(0)) }
    }

    /// Writes a number of bytes in KiB, at most 4 TiB.
    mutating func put(kibibytes bytes: Int) { put(UInt32(clamping: max(0, bytes) >> 10)) }

    /// Writes at most `room` bytes of the text as UTF-8, and zeros behind. Allocates nothing for a native string.
    mutating func put(_ text: String, room: Int) {
        let place = UnsafeMutableRawBufferPointer(start: start + offset, count: room)
        let count = min(room, text.utf8.count)
        let isCopied: Void? = text.utf8.withContiguousStorageIfAvailable { bytes in
            for index in 0..<count { place[index] = bytes[index] }
        }
        if isCopied == nil { for (index, byte) in text.utf8.prefix(count).enumerated() { place[index] = byte } }
        for index in count..<room { place[index] = 0 }
        offset += room
    }

    /// Fills the rest with zeros, and writes the checksum.
    mutating func seal() {
        skip(to: size)
        let sum = BoxSum.of(UnsafeRawBufferPointer(start: start, count: size))
        start.storeBytes(of: sum.littleEndian, as: UInt32.self)
    }
}

/// Reads the fields of one record, in order.
struct BoxReader {
    private let bytes: ArraySlice<UInt8>
    private var offset = 4

    /// Begins to read a record; `nil` if its checksum is wrong: never written, or torn.
    init?(_ bytes: ArraySlice<UInt8>) {
        self.bytes = bytes
        let sum: UInt32 = Self.number(bytes, 0)
        guard bytes.withUnsafeBytes({ BoxSum.of($0) }) == sum else { return nil }
    }

    mutating func take<Number: FixedWidthInteger>(_ type: Number.Type = Number.self) -> Number {
        defer { offset += MemoryLayout<Number>.size }
        return Self.number(bytes, offset)
    }

    /// Continues at that offset of the record.
    mutating func skip(to place: Int) { offset = place }

    mutating func takeKibibytes() -> Int { Int(take(UInt32.self)) << 10 }

    /// Returns a number of bytes; `nil` for a negative one. At most 1 PiB, so that sums and products of numbers from a
    /// file do not overflow.
    mutating func takeBytes() -> Int? {
        let bytes = take(Int64.self)
        return bytes < 0 ? nil : Int(min(bytes, 1 << 50))
    }

    /// Returns a text of at most `room` bytes. A character that the writer has cut in two is left out.
    mutating func takeText(room: Int) -> String {
        let place = bytes.startIndex + offset
        offset += room
        var text = String(decoding: bytes[place..<place + room].prefix { $0 != 0 }, as: UTF8.self)
        if text.last == "\u{FFFD}" { text.removeLast() }
        return printable(text)
    }

    static func number<Number: FixedWidthInteger>(_ bytes: ArraySlice<UInt8>, _ offset: Int) -> Number {
        bytes.withUnsafeBytes {
            Number(littleEndian: $0.loadUnaligned(fromByteOffset: offset, as: Number.self))
        }
    }
}
