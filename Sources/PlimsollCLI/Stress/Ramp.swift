import Glibc
import Plimsoll
import Synchronization

/// Memory that is asked for and touched at a given speed, and kept.
final class Ramp: Sendable {
    private static let chunk = 1 << 20
    private static let hugeChunk = 2 << 20

    private let left: Atomic<Int>
    private let taken = Atomic<Int>(0)
    private let bytesPerSecond: Double?
    private let threads: Int
    private let hugePages: Bool
    private let demand: Demand?

    /// - Parameters:
    ///   - hugePages: whether the kernel may serve it with huge pages.
    ///   - demand: is told of each chunk.
    init(_ size: ByteCount, bytesPerSecond: Double?, threads: Int = 1, hugePages: Bool = false, demand: Demand? = nil) {
        left = Atomic(size.bytes)
        self.bytesPerSecond = bytesPerSecond
        self.threads = threads
        self.hugePages = hugePages
        self.demand = demand
    }

    /// Takes it all; returns when everything is touched.
    func run() {
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

    /// Maps `size` bytes and touches each of their pages, as fast as that goes.
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
        guard let start = mmap(nil, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), start != MAP_FAILED else {
            // No limit of the group does this: address space or the machine itself has run out.
            Output.error("plimsoll: mmap: \(String(cString: strerror(errno)))")
            exit(1)
        }
        return start
    }

    /// Where the kernel has no huge pages these are small ones: the advice is refused, and nothing is lost.
    private static func huge() -> UnsafeMutableRawPointer {
        let start = map(2 * hugeChunk).alignedUp(toMultipleOf: hugeChunk)
        madvise(start, hugeChunk, MADV_HUGEPAGE)
        return start
    }
}
