import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll

/// The address space of volatile caches: random takes and returns, compared with a plain list.
@Suite(.needsLinux) struct AddressSpaceTests {
    private static let huge = 2 << 20

    private struct Part {
        var start: UInt
        var bytes: Int
        var range: Range<UInt> { start..<start + UInt(AddressSpace.rounded(bytes)) }
    }

    private static func take(_ bytes: Int, of space: inout AddressSpace) throws -> UnsafeMutableRawPointer {
        let address = space.take(bytes)
        return try #require(address)
    }

    @Test func `parts do not overlap, are aligned, and are readable zeros`() throws {
        for seed in seeds(0..<20) {
            var random = SeededGenerator(seed: seed), space = AddressSpace(), parts: [Part] = []
            for _ in 0..<300 {
                if !parts.isEmpty, Bool.random(using: &random) {
                    let part = parts.remove(at: .random(in: 0..<parts.count, using: &random))
                    space.give(try #require(UnsafeMutableRawPointer(bitPattern: part.start)), part.bytes)
                    continue
                }
                let bytes =
                    switch Int.random(in: 0..<4, using: &random) {
                    case 0: Self.huge * Int.random(in: 1...3, using: &random)
                    case 1: AddressSpace.block
                    default: Int.random(in: 1...(3 << 20), using: &random)
                    }
                let address = try Self.take(bytes, of: &space), part = Part(start: UInt(bitPattern: address), bytes: bytes)
                let alignment = AddressSpace.rounded(bytes) % Self.huge == 0 ? Self.huge : AddressSpace.block
                #expect(part.start % UInt(alignment) == 0, "seed \(seed): \(bytes) bytes at \(part.start)")
                #expect(!parts.contains { $0.range.overlaps(part.range) }, "seed \(seed): \(bytes) bytes at \(part.start)")
                #expect(address.load(as: UInt8.self) == 0 && address.load(fromByteOffset: bytes - 1, as: UInt8.self) == 0)
                parts.append(part)
            }
        }
    }

    @Test func `neighbouring parts that are returned become one free part, in each order`() throws {
        for seed in seeds(0..<20) {
            var random = SeededGenerator(seed: seed), space = AddressSpace()
            let whole = try Self.take(4 * Self.huge, of: &space)
            space.give(whole, 4 * Self.huge)
            var parts: [UnsafeMutableRawPointer] = []
            for _ in 0..<16 { parts.append(try Self.take(Self.huge / 4, of: &space)) }
            #expect(parts.map { UInt(bitPattern: $0) } == (0..<16).map { UInt(bitPattern: whole) + UInt($0 * Self.huge / 4) })
            for part in parts.shuffled(using: &random) { space.give(part, Self.huge / 4) }
            let again = space.take(4 * Self.huge)
            #expect(again == whole, "seed \(seed)")
        }
    }

    @Test func `each extent is an eighth of the present address space, in whole huge pages`() throws {
        var space = AddressSpace(), total = 0
        for _ in 0..<40 {
            let extent = max(1, total / 8)
            let start = UInt(bitPattern: try Self.take(Self.huge, of: &space))
            // The kernel places an extent below the last one, and parts are taken from the start of an extent.
            for part in 1..<max(1, extent) {
                let next = UInt(bitPattern: try Self.take(Self.huge, of: &space))
                #expect(next == start + UInt(part * Self.huge), "\(total) huge pages, part \(part) of \(extent)")
            }
            total += extent
        }
        #expect(total > 200)
    }
}
