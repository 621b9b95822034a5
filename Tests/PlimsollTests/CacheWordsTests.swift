import PlimsollTesting
import Testing

@testable import Plimsoll

@Suite struct CacheWordsTests {
    @Test func `every size at every alignment is copied whole, and not a byte beside it`() {
        var random = SeededGenerator(seed: 1)
        let source = UnsafeMutableRawPointer.allocate(byteCount: 128, alignment: 16)
        let target = UnsafeMutableRawPointer.allocate(byteCount: 128, alignment: 16)
        defer {
            source.deallocate()
            target.deallocate()
        }
        for alignment in [1, 2, 4, 8, 16] {
            for size in 0...80 {
                for offset in stride(from: 0, to: 32, by: alignment) {
                    for isRead in [true, false] {
                        for byte in 0..<128 { source.storeBytes(of: UInt8.random(in: 0..<128, using: &random), toByteOffset: byte, as: UInt8.self) }
                        for byte in 0..<128 { target.storeBytes(of: 0xFF, toByteOffset: byte, as: UInt8.self) }
                        if isRead {
                            CacheWords.read(size, alignment, from: source + offset, to: target + offset)
                        } else {
                            CacheWords.write(size, alignment, from: source + offset, to: target + offset)
                        }
                        let isRight = (0..<128).allSatisfy { byte in
                            let found = target.load(fromByteOffset: byte, as: UInt8.self)
                            return offset..<offset + size ~= byte ? found == source.load(fromByteOffset: byte, as: UInt8.self) : found == 0xFF
                        }
                        #expect(isRight, "\(size) bytes at \(offset), aligned to \(alignment)")
                    }
                }
            }
        }
    }

    /// Threads of glibc have stacks of 8 MiB one below the other, others of 512 KiB to 2 MiB.
    @Test(arguments: [512 << 10, 1 << 20, 2 << 20, 8 << 20, (8 << 20) + 4096] as [UInt])
    func `threads count on different lines, however far their stacks are apart`(apart: UInt) {
        for start in [0x7F12_3456_7000, 0x7FFF_FFFF_0000, 0x5555_0000_1000] as [UInt] {
            let lines = Set((0..<8).map { CacheCounters.stripe(start - $0 * apart) })
            #expect(lines.count >= 4 && lines.allSatisfy { 0..<CacheCounters.stripes ~= $0 }, "\(lines)")
        }
    }
}
