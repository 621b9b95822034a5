import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll

/// The file format of state, against every kind of damage to a file.
@Suite(.serialized, .timeLimit(.minutes(5))) struct PreservationFileTests {
    /// Returns a file with a whole state and changes.
    static func file(_ records: [[UInt8]], nonce: UInt64 = 0x0123_4567_89ab_cdef) -> [UInt8] {
        var file = StateFile.header(nonce: nonce)
        for (number, record) in records.enumerated() {
            file += StateFile.recordHeader(record, number: UInt32(number), at: file.count, nonce: nonce) + record
        }
        return file
    }

    static func read(_ file: [UInt8]) -> [[UInt8]]? {
        (try? StateFile(parsing: file)).map { parsed in parsed.records.map { Array(file[$0]) } }
    }

    static let records: [[UInt8]] = [Array("the whole".utf8), [1, 2, 3], [], Array("last".utf8)]

    @Test func `the checksum is CRC-32C`() {
        // The check value of the catalogue of parametrised CRC algorithms, and the values of RFC 3720, B.4.
        #expect(CRC32C.checksum(Array("123456789".utf8)) == 0xe306_9283)
        #expect(CRC32C.checksum([UInt8](repeating: 0, count: 32)) == 0x8a91_36aa)
        #expect(CRC32C.checksum([UInt8](repeating: 0xff, count: 32)) == 0x62a8_ab43)
        #expect(CRC32C.checksum((0..<32).map { $0 }) == 0x46dd_794e)
        #expect(CRC32C.checksum([]) == 0)
        var incremental = CRC32C()
        for byte in "123456789".utf8 { incremental.add(byte) }
        #expect(incremental.value == 0xe306_9283)
    }

    @Test func `written records are read back equal`() throws {
        for count in 1...Self.records.count {
            let file = Self.file(Array(Self.records.prefix(count)))
            let parsed = try StateFile(parsing: file)
            #expect(Self.read(file) == Array(Self.records.prefix(count)) && parsed.end == file.count)
            #expect(parsed.end - parsed.records[0].upperBound == file.count - 24 - 24 - 9)
        }
        // The next version must read this format.
        let hex = Self.file([[0x61]]).map { byte in (byte < 16 ? "0" : "") + String(byte, radix: 16) }.joined()
        #expect(hex.hasPrefix("504c4d535441544501000000") && hex.hasSuffix("61") && hex.count == 2 * 49)
    }

    @Test func `C42 a file cut anywhere gives the whole with the changes before the cut, or nothing`() {
        let file = Self.file(Self.records)
        let ends = (0...Self.records.count).map { Self.file(Array(Self.records.prefix($0))).count }
        for length in 0..<file.count {
            let whole = ends.lastIndex { $0 <= length } ?? 0
            #expect(Self.read(Array(file[..<length])) == (whole == 0 ? nil : Array(Self.records.prefix(whole))), "cut to \(length)")
        }
    }

    @Test func `C42 no single flipped bit gives wrong bytes`() {
        let file = Self.file(Self.records)
        let lastStart = Self.file(Array(Self.records.dropLast())).count
        for bit in 0..<file.count * 8 {
            var flipped = file
            flipped[bit / 8] ^= 1 << UInt8(bit % 8)
            // A flip within the last record looks like an interrupted append. A flip anywhere else is damage.
            #expect(Self.read(flipped) == (bit / 8 < lastStart ? nil : Array(Self.records.dropLast())), "bit \(bit)")
        }
    }

    @Test func `C42 no file crashes the reader or gives unwritten bytes`() {
        let file = Self.file(Self.records)
        var accepted = 0
        for seed in seeds(0..<4000) {
            var random = SeededGenerator(seed: seed)
            var bytes: [UInt8]
            switch seed % 4 {
            case 0:
                // Random bytes.
                bytes = (0..<Int.random(in: 0..<300, using: &random)).map { _ in UInt8.random(in: 0...255, using: &random) }
            case 1:
                // Random bytes behind a valid header.
                bytes = Array(file[..<24]) + (0..<Int.random(in: 0..<300, using: &random)).map { _ in UInt8.random(in: 0...255, using: &random) }
            case 2:
                // Some bytes changed.
                bytes = file
                for _ in 0..<Int.random(in: 1...8, using: &random) { bytes[Int.random(in: 0..<bytes.count, using: &random)] = random.next() as UInt8 }
            default:
                // A part moved, doubled or left out.
                let from = Int.random(in: 0..<file.count, using: &random), to = Int.random(in: 0..<file.count, using: &random)
                bytes = Array(file[..<from]) + file[to...]
            }
            guard let read = Self.read(bytes) else { continue }
            accepted += 1
            #expect(Self.records.starts(with: read) && !read.isEmpty, "seed \(seed)")
        }
        if !hasChosenSeed { #expect(accepted > 100, "the property was hardly exercised") }
    }

    @Test func `a state file inside a state counts as plain bytes`() throws {
        let inner = Self.file(Self.records)
        let outer = Self.file([inner, inner])
        #expect(Self.read(outer) == [inner, inner])
        // A file cut within the copy counts as an interrupted append, though the rest of the copy contains whole
        // records.
        #expect(Self.read(Array(outer.dropLast(3))) == [inner])
        #expect(throws: StateFile.Damage(description: "record 1 is in the place of record 0")) {
            try StateFile(parsing: StateFile.header(nonce: 1) + StateFile.recordHeader([1], number: 1, at: 24, nonce: 1) + [1])
        }
    }

    @Test func `lengths beyond all bounds are refused`() {
        for length in [UInt64.max, UInt64(Int64.max), 1 << 40] {
            var sum = CRC32C()
            let rest = withUnsafeBytes(of: length.littleEndian) { Array($0) } + [UInt8](repeating: 0, count: 8)
            rest.withUnsafeBytes { sum.add($0) }
            sum.add(UInt64(7))
            sum.add(UInt64(24))
            var file = StateFile.header(nonce: 7)
            file +=
                withUnsafeBytes(of: UInt32(0x4345_5250).littleEndian) { Array($0) } + withUnsafeBytes(of: sum.value.littleEndian) { Array($0) } + rest
            #expect(throws: StateFile.Damage.self) { try StateFile(parsing: file) }
        }
    }
}
