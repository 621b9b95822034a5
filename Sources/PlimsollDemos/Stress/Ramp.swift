import Glibc
package import Plimsoll
import Synchronization

/// Memory that is allocated and touched at a given rate, and kept.
package final class Ramp: Sendable {
    private static let chunk = 1 << 20
    private static let hugeChunk = 2 << 20

    private let left: Atomic<Int>
    private let taken = Atomic<Int>(0)
    private let bytesPerSecond: Double?
    private let threads: Int
    private let hugePages: Bool
    private let demand: Demand?

    /// Creates a ramp.
    ///
    /// - Parameters:
    ///   - hugePages: true if the kernel may use huge pages.
    ///   - demand: counter to which each chunk is added.
    package init(
        _ size: ByteCount, bytesPerSecond: Double?, threads: Int = 1, hugePages: Bool = false, demand: Demand? = nil
    ) {
        left = Atomic(size.bytes)
        self.bytesPerSecond = bytesPerSecond
        self.threads = threads
        self.hugePages = hugePages
        self.demand = demand
    }

    /// Allocates everything. Returns when all pages are touched.
    package func run() {
        let others = (1..<threads).compactMap { _ in PlainThread { [self] in climb() } }
        climb()
        for thread in others { thread.join() }
    }

    private func climb() {
        let start = SteadyClock.now
        let size = hugePages ? Self.hugeChunk : Self.chunk
        while left.wrappingSubtract(size, ordering: .relaxed).oldValue > 0 {
            Self.touch(hugePages ? Self.huge() : Self.map(size), size)
            let total = taken.wrappingAdd(size, ordering: .relaxed).newValue
            demand?.add(size)
            if let bytesPerSecond { SteadyClock.sleep(until: start + .seconds(Double(total) / bytesPerSecond)) }
        }
    }

    /// Maps `size` bytes and touches each page, as fast as possible.
    static func touched(_ size: Int) -> UnsafeMutableRawPointer {
        let start = map(size)
        touch(start, size)
        return start
    }

    private static func touch(_ start: UnsafeMutableRawPointer, _ size: Int) {
        for offset in stride(from: 0, to: size, by: Int(sysconf(Int32(_SC_PAGESIZE)))) {
            start.storeBytes(of: 1, toByteOffset: offset, as: UInt8.self)
        }
    }

    private static func map(_ size: Int) -> UnsafeMutableRawPointer {
        guard let start = mmap(nil, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
            start != MAP_FAILED
        else {
            // No limit of the group causes this: address space or the machine itself has run out.
            Output.error("plimsoll: mmap: \(String(cString: strerror(errno)))")
            exit(1)
        }
        return start
    }

    /// Maps a huge page. A kernel without huge pages refuses the advice, and the pages are small.
    private static func huge() -> UnsafeMutableRawPointer {
        let start = map(2 * hugeChunk).alignedUp(toMultipleOf: hugeChunk)
        madvise(start, hugeChunk, MADV_HUGEPAGE)
        return start
    }
}
