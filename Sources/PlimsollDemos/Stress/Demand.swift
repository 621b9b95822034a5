import Glibc
package import Plimsoll
import PlimsollTesting
import Synchronization

/// The memory requested so far, releases not subtracted: an early release must not move the mark that measures the
/// reaction.
package final class Demand: Sendable {
    // Relaxed ordering: a sum, and a moment noted once; no other memory is published through them.
    private let total: Atomic<Int>
    private let crossing = Atomic<Int>(0)
    private let line: ByteCount

    /// Creates a counter.
    ///
    /// - Parameters:
    ///   - held: memory held at the start.
    ///   - line: demand at which the time is recorded.
    init(held: ByteCount, line: ByteCount) {
        total = Atomic(held.bytes)
        self.line = line
    }

    /// Adds `bytes` to the demand.
    func add(_ bytes: Int) {
        let (before, now) = total.wrappingAdd(bytes, ordering: .relaxed)
        if now >= line.bytes, before < line.bytes {
            crossing.store(Int(SteadyClock.now.inNanoseconds / 1000), ordering: .relaxed)
        }
    }

    /// Time at which the line was crossed; `nil` if the line was not crossed.
    var crossed: Duration? {
        let microseconds = crossing.load(ordering: .relaxed)
        return microseconds == 0 ? nil : .microseconds(microseconds)
    }
}

/// Memory that is allocated, held for a moment and freed, again and again, at random sizes and times.
struct Bursts: Equatable, Sendable {
    /// Sizes, as shares of the limit; several threads divide a size among them.
    var size = 0.1...0.6
    /// Number of threads that allocate bursts, each at separate times.
    var threads = 1
    /// Time after which no burst begins.
    var length = Duration.seconds(30)

    /// Seconds that a burst is held, and seconds until the next.
    private static let held = 0.05...0.5, pause = 0.0...1.5

    /// One burst of one thread.
    struct Burst: Equatable {
        var size: ByteCount
        var held: Duration
        var pause: Duration
    }

    func next(limit: ByteCount, using random: inout SeededGenerator) -> Burst {
        Burst(
            size: limit * (.random(in: size, using: &random) / Double(threads)),
            held: .seconds(.random(in: Self.held, using: &random)),
            pause: .seconds(.random(in: Self.pause, using: &random)))
    }

    /// Runs bursts until `length` is over. Returns when all memory is freed.
    func run(limit: ByteCount, seed: UInt64) {
        let end = SteadyClock.now + length
        let others = (1..<threads).compactMap { number in
            PlainThread { take(until: end, limit, seed &+ UInt64(number)) }
        }
        take(until: end, limit, seed)
        for thread in others { thread.join() }
    }

    private func take(until end: Duration, _ limit: ByteCount, _ seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        while SteadyClock.now < end {
            let burst = next(limit: limit, using: &random)
            let start = Ramp.touched(burst.size.bytes)
            SteadyClock.sleep(burst.held)
            munmap(start, burst.size.bytes)
            SteadyClock.sleep(burst.pause)
        }
    }
}

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
            Output.problem("cannot map memory: \(String(cString: strerror(errno)))")
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
