import PlimsollTesting
import Testing

@testable import Plimsoll

@Suite struct AtomicCopyTests {
    @Test func `every size at every alignment is copied whole, and no byte outside changes`() {
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
                            AtomicCopy.read(size, alignment, from: source + offset, to: target + offset)
                        } else {
                            AtomicCopy.write(size, alignment, from: source + offset, to: target + offset)
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
}
