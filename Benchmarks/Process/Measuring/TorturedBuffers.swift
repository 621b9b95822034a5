import Glibc
import Plimsoll
import PlimsollTesting
import Synchronization

/// `PurgeableBuffer`s of several sizes. Each word identifies the word's buffer and position.
final class TorturedBuffers: Tortured {
    private final class Block: Sendable {
        let identity: UInt64
        let buffer: PurgeableBuffer

        init(_ identity: UInt64, byteCount: Int) {
            self.identity = identity
            buffer = PurgeableBuffer("tortured", byteCount: byteCount, isGuarded: false)
            buffer.withAccess { bytes in
                bytes.withUnsafeMutableBytes { bytes in
                    let words = bytes.bindMemory(to: UInt64.self)
                    for index in words.indices { words[index] = Self.word(identity, index) }
                }
            }
        }

        /// Returns the word for a position. Odd multiples, so that neither zeros nor words of another place or buffer
        /// match.
        @inline(__always)
        static func word(_ identity: UInt64, _ index: Int) -> UInt64 {
            (identity << 32 | UInt64(index)) &* 0x9e37_79b9_7f4a_7c15 | 1 << 63
        }

        /// Returns the number of bytes in wrong words; `nil` if the contents are gone.
        func wrongBytes() -> Int? {
            buffer.withAccess { bytes in
                bytes.withUnsafeBytes { bytes in
                    let words = bytes.bindMemory(to: UInt64.self)
                    var wrong = 0
                    for index in words.indices where words[index] != Self.word(identity, index) { wrong += 8 }
                    return wrong
                }
            }
        }
    }

    private final class Slot: Sendable {
        let byteCount: Int
        let block: Mutex<Block>
        var pages: Int { (byteCount + page - 1) / page }

        init(_ block: Block, byteCount: Int) {
            self.byteCount = byteCount
            self.block = Mutex(block)
        }
    }

    private let slots: [Slot]
    private let made = Atomic<UInt64>(0)
    /// Index of the slot most recently accessed. Reclaim during an access is the case to survive.
    private let latest = Atomic<Int>(0)
    private static let page = Int(sysconf(Int32(_SC_PAGESIZE)))
    /// Mostly small buffers, for many accesses a second, with one of huge pages now and then.
    private static let sizes = [64 << 10, 16 << 10, 256 << 10, 4 << 10, 128 << 10, 32 << 10, 64 << 10, 4 << 20]

    /// Creates buffers of about `total` bytes together.
    init(total: ByteCount) {
        var slots: [Slot] = [], sum = 0
        while sum < total.bytes || slots.isEmpty {
            let size = Self.sizes[slots.count % Self.sizes.count]
            slots.append(Slot(Block(UInt64(slots.count), byteCount: size), byteCount: size))
            sum += size
        }
        self.slots = slots
        made.store(UInt64(slots.count), ordering: .relaxed)
    }

    func read(_ random: inout SeededGenerator) -> Torture.Tally {
        let index = Int.random(in: slots.indices, using: &random), slot = slots[index]
        let block = slot.block.withLock { $0 }
        latest.store(index, ordering: .relaxed)
        if let wrong = block.wrongBytes() { return Torture.Tally(reads: slot.pages, wrongBytes: wrong) }
        let next = Block(made.wrappingAdd(1, ordering: .relaxed).newValue, byteCount: slot.byteCount)
        slot.block.withLock { current in if current === block { current = next } }
        return Torture.Tally(dropped: 1)
    }

    func reclaim(_ random: inout SeededGenerator) {
        let index =
            Bool.random(using: &random)
            ? latest.load(ordering: .relaxed) : Int.random(in: slots.indices, using: &random)
        let pages = slots[index].pages, first = Int.random(in: 0..<pages, using: &random)
        let block = slots[index].block.withLock { $0 }
        block.buffer.reclaim(pages: first..<min(pages, first + Int.random(in: 1...8, using: &random)))
    }
}
