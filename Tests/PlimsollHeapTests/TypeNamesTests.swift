import CAllocationCounter
import CPlimsollHeap
import TestSupport
import Testing

@testable import PlimsollHeap

/// Names of types that a hostile process has made up in its memory. Here the memory is the test's own.
@Suite(.timeLimit(.minutes(5)), .needs(allocation_count_works(), "a sanitizer is in front of malloc")) struct TypeNamesTests {
    /// Memory with made-up metadata, and the reader of the process's memory.
    private final class Memory {
        let heap: OpaquePointer
        private let bytes: UnsafeMutableRawPointer

        init(byteCount: Int) throws {
            var failure: Int32 = 0
            let opened = plimsoll_census_open(0, &failure)
            heap = try #require(opened)
            bytes = .allocate(byteCount: byteCount, alignment: 8)
            bytes.initializeMemory(as: UInt8.self, repeating: 0, count: byteCount)
        }

        deinit {
            bytes.deallocate()
            plimsoll_census_close(heap)
        }

        func address(_ offset: Int) -> UInt64 { UInt64(UInt(bitPattern: bytes)) + UInt64(offset) }

        func put<Value: BitwiseCopyable>(_ value: Value, at offset: Int) {
            bytes.storeBytes(of: value, toByteOffset: offset, as: Value.self)
        }
    }

    private static let tuple: UInt64 = 0x301, existential: UInt64 = 0x303

    @Test func `types that nest have names of a bounded length`() throws {
        let width = 31, size = 24 + width * 16, memory = try Memory(byteCount: 5 * size)
        // A type without protocols, and four tuples that each have the type before as all elements.
        memory.put(Self.existential, at: 0)
        memory.put(UInt32(1) << 31, at: 8)
        for level in 1...4 {
            memory.put(Self.tuple, at: level * size)
            memory.put(UInt64(width), at: level * size + 8)
            for index in 0..<width { memory.put(memory.address((level - 1) * size), at: level * size + 24 + index * 16) }
        }
        var names = TypeNames(memory.heap)
        let name = names.name(ofMetadata: memory.address(4 * size)), length = name.utf8.count
        #expect(name.hasPrefix("((((Any, Any, ") && name.hasSuffix("…"))
        #expect(length < 3000)
        withExtendedLifetime(memory) {}
    }

    @Test func `the number of names has a bound`() throws {
        let count = 70_000, memory = try Memory(byteCount: count * 16)
        for index in 0..<count { memory.put(Self.tuple, at: index * 16) }
        var names = TypeNames(memory.heap)
        var texts: [String: Int] = [:]
        for index in 0..<count { texts[names.name(ofMetadata: memory.address(index * 16)), default: 0] += 1 }
        #expect(texts == ["()": 65_536, "…": count - 65_536])
        withExtendedLifetime(memory) {}
    }

    @Test func `a closure that captures many types has a name of a bounded length`() throws {
        let memory = try Memory(byteCount: 2048), descriptor = 32, text = 1024, count = 63
        memory.put(memory.address(descriptor), at: 16)
        memory.put(UInt32(count), at: descriptor)
        for index in 0..<count {
            let field = descriptor + 12 + index * 4
            memory.put(Int32(text - field), at: field)
        }
        // The mangled name of a tuple of 401 whole numbers.
        for (index, byte) in ("Si_" + String(repeating: "Si", count: 400) + "t").utf8.enumerated() { memory.put(byte, at: text + index) }
        var type = plimsoll_census_type()
        type.kind = UInt8(PLIMSOLL_CENSUS_CAPTURE.rawValue)
        type.metadata = memory.address(0)
        var names = ObjectNames(memory.heap)
        let name = names.name(of: type), length = name.utf8.count
        #expect(name.hasPrefix("closure capturing (Int, Int, "))
        #expect(length < 3000)
        withExtendedLifetime(memory) {}
    }
}
