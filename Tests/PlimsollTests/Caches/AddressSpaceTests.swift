import CAllocationCounter
import CPlimsollMemory
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

    @Test func `an extent has at most 256 MiB, unless one part is larger`() throws {
        var space = AddressSpace()
        // An eighth of these is more than 256 MiB.
        for _ in 0..<4 { _ = try Self.take(1 << 30, of: &space) }
        let part = 1 << 20, start = UInt(bitPattern: try Self.take(part, of: &space))
        for number in 1..<256 {
            let next = UInt(bitPattern: try Self.take(part, of: &space))
            #expect(next == start + UInt(number * part), "part \(number)")
        }
        let beyond = UInt(bitPattern: try Self.take(part, of: &space))
        #expect(beyond != start + 256 << 20)
    }

    @Test func `a part that is taken again leaves no trace between the others`() throws {
        var space = AddressSpace()
        let size = Self.huge / 4
        let whole = try Self.take(Self.huge, of: &space)
        space.give(whole, Self.huge)
        var parts: [UnsafeMutableRawPointer] = []
        for _ in 0..<4 { parts.append(try Self.take(size, of: &space)) }
        #expect(parts == (0..<4).map { whole + $0 * size })
        space.give(parts[1], size)
        let second = space.take(size)
        #expect(second == parts[1])
        for number in [2, 3, 1, 0] { space.give(parts[number], size) }
        let again = space.take(Self.huge)
        #expect(again == whole)
    }

    /// Takes an extent of its own for each part, away from the others, so that none of them merge once they are free.
    private struct Extents: ~Copyable {
        var space = AddressSpace()
        private var total = 0
        private(set) var parts: [UnsafeMutableRawPointer] = []
        private(set) var sizes: [Int] = []
        private var spacers: [UnsafeMutableRawPointer] = []

        init(beside bytes: Int = 0) { total = bytes }

        deinit { for spacer in spacers { _ = plimsoll_unmap(spacer, plimsoll_page_size()) } }

        mutating func take(_ count: Int) {
            let huge = AddressSpaceTests.huge
            for _ in 0..<count {
                let bytes = max(huge, total / 8 / huge * huge)
                var spacer: UnsafeMutableRawPointer?
                guard let part = space.take(bytes), plimsoll_map(plimsoll_page_size(), plimsoll_page_size(), &spacer) == 0, let spacer
                else { return }
                parts.append(part)
                sizes.append(bytes)
                spacers.append(spacer)
                total += bytes
            }
        }

        /// Gives the parts back, and returns the number of allocations meanwhile. Avoids `for`, which allocates in a debug
        /// build.
        mutating func give() -> UInt64 {
            var number = 0
            let before = allocation_count()
            while number < parts.count {
                space.give(parts[number], sizes[number])
                number += 1
            }
            return allocation_count() - before
        }
    }

    @Test(.needs(allocation_count_works(), "a sanitizer is in front of malloc"))
    func `parts go back without an allocation, however many do not adjoin`() {
        // The first round warms the runtime up.
        for round in 0..<2 {
            for count in [1, 2, 3, 5, 9, 17, 40] {
                var extents = Extents()
                extents.take(count)
                let taken = extents.parts.count, allocations = extents.give()
                #expect(taken == count && (allocations == 0 || round == 0), "\(count) parts: \(allocations)")
            }
        }
    }

    @Test(.needs(allocation_count_works(), "a sanitizer is in front of malloc"))
    func `parts go back without an allocation, beside many that are free`() {
        for round in 0..<2 {
            let size = 256 << 10, most = 32 << 20
            var extents = Extents(beside: most), small: [UnsafeMutableRawPointer] = []
            // Every other of 128 parts is free.
            if let whole = extents.space.take(most) { extents.space.give(whole, most) }
            while small.count < 128, let part = extents.space.take(size) { small.append(part) }
            #expect(small.count == 128)
            var number = 1
            while number < small.count {
                extents.space.give(small[number], size)
                number += 2
            }
            extents.take(20)
            let taken = extents.parts.count, allocations = extents.give()
            #expect(taken == 20 && (allocations == 0 || round == 0), "\(allocations)")
        }
    }
}
