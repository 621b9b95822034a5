import Plimsoll
import Testing

@Suite struct ByteCountTests {
    // Typed, here and below: with inferred types the compiler takes most of a second.
    static let numbers: [(String, Int)] = [
        ("512", 512), ("1k", 1024), ("512M", 512 << 20), ("512MiB", 512 << 20), ("1.5 G", 3 << 29), ("0", 0), ("2 tib", 2 << 40),
        ("512MB", 512_000_000), ("1.5 kB", 1500), ("2gb", 2_000_000_000), ("1TB", 1_000_000_000_000), ("512Mi", 512 << 20), (" 3 Gi ", 3 << 30),
    ]

    @Test(arguments: numbers)
    func `numbers with units are parsed`(text: String, bytes: Int) {
        #expect(ByteCount(text)?.bytes == bytes)
    }

    @Test func `each unit has its factor, in either case`() {
        let powers = ["k", "m", "g", "t"]
        for (index, letter) in powers.enumerated() {
            let binary = 1 << (10 * (index + 1)), decimal = (0...index).reduce(1) { product, _ in product * 1000 }
            for (unit, factor) in [(letter, binary), (letter + "i", binary), (letter + "ib", binary), (letter + "b", decimal)] {
                #expect(ByteCount("3\(unit)")?.bytes == 3 * factor, "3\(unit)")
                #expect(ByteCount("3 \(unit.uppercased()) ")?.bytes == 3 * factor, "3 \(unit.uppercased())")
            }
        }
        #expect(ByteCount("3b") == 3 && ByteCount("3 B") == 3)
    }

    @Test(arguments: ["", "M", "-1", "1.2.3", "12Q", "1e3M", "nan", "inf", "99999999999T", "12 M B", "1 2M", "MB", "12MBit"])
    func `other text is refused`(text: String) {
        #expect(ByteCount(text) == nil)
    }

    static let descriptions: [(Int, String)] = [
        (0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (10 << 20, "10 MiB"), (23 << 30, "23 GiB"), (-1536, "-1.5 KiB"),
    ]

    @Test(arguments: descriptions)
    func `a byte count is described in the largest unit`(bytes: Int, text: String) {
        #expect(ByteCount(bytes).description == text)
    }

    @Test func `arithmetic saturates`() {
        #expect(ByteCount.max + .bytes(1) == .max)
        #expect(ByteCount(Int.min) - .bytes(1) == ByteCount(Int.min))
        #expect(ByteCount.gibibytes(Int.max) == .max && ByteCount.kibibytes(Int.max) == .max)
        #expect(ByteCount.gibibytes(Int.min) == ByteCount(Int.min) && ByteCount.mebibytes(-1) == ByteCount(-1 << 20))
        #expect(ByteCount.max * 2 == .max)
        #expect(ByteCount.bytes(10) * .nan == .max)
        #expect(ByteCount.bytes(100) * 0.255 == 25)
    }
}
