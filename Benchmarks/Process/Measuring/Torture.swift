import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollTesting
import Synchronization

/// Volatile memory with known contents, which is read while the kernel reclaims pages.
protocol Tortured: Sendable {
    /// Reads one block chosen by `random` and checks every byte. Rebuilds the block if its contents are gone.
    func read(_ random: inout SeededGenerator) -> Torture.Tally

    /// Has the kernel reclaim some of the memory now.
    func reclaim(_ random: inout SeededGenerator)
}

/// Several threads read and check memory while another thread makes the kernel reclaim pages.
final class Torture: Sendable {
    /// Counts of reads and findings.
    struct Tally {
        /// Number of pages made readable and checked word for word.
        var reads = 0
        var wrongBytes = 0
        /// Number of blocks found gone.
        var dropped = 0
    }

    private let victim: any Tortured
    private let seed: UInt64
    /// Memory allocated and freed over and over to force reclaim; `nil` to request reclaim page by page.
    private let squeeze: ByteCount?
    // Relaxed ordering: sums, and a flag that publishes nothing. The threads are joined before the sums are read.
    private let reads = Atomic<Int>(0)
    private let wrongBytes = Atomic<Int>(0)
    private let dropped = Atomic<Int>(0)
    private let isOver = Atomic<Bool>(false)

    init(_ victim: any Tortured, seed: UInt64, squeeze: ByteCount? = nil) {
        self.victim = victim
        self.seed = seed
        self.squeeze = squeeze
    }

    /// Minimum of reclaimed blocks; fewer prove little. On a busy machine much may be read before the kernel reclaims
    /// any.
    private static let leastDropped = 100

    /// Runs until `goal` pages were read and enough blocks were reclaimed, or the time is up.
    func run(readers: Int, reads goal: Int, for length: Duration) throws -> Tally {
        let start = SteadyClock.now
        var threads = (0..<readers).compactMap { reader in
            PlainThread { [self] in read(SeededGenerator(seed: seed &+ UInt64(reader))) }
        }
        if let force = PlainThread({ [self] in force(SeededGenerator(seed: seed &- 1)) }) { threads.append(force) }
        defer {
            isOver.store(true, ordering: .relaxed)
            for thread in threads { thread.join() }
        }
        guard threads.count == readers + 1 else { throw Failure.failed("cannot start a thread") }
        while reads.load(ordering: .relaxed) < goal || dropped.load(ordering: .relaxed) < Self.leastDropped,
            SteadyClock.now - start < length
        {
            SteadyClock.sleep(.milliseconds(10))
        }
        isOver.store(true, ordering: .relaxed)
        for thread in threads { thread.join() }
        threads = []
        return Tally(
            reads: reads.load(ordering: .relaxed), wrongBytes: wrongBytes.load(ordering: .relaxed),
            dropped: dropped.load(ordering: .relaxed))
    }

    private func read(_ random: SeededGenerator) {
        var random = random
        while !isOver.load(ordering: .relaxed) {
            let tally = victim.read(&random)
            reads.wrappingAdd(tally.reads, ordering: .relaxed)
            if tally.wrongBytes > 0 { wrongBytes.wrappingAdd(tally.wrongBytes, ordering: .relaxed) }
            if tally.dropped > 0 { dropped.wrappingAdd(tally.dropped, ordering: .relaxed) }
        }
    }

    private func force(_ random: SeededGenerator) {
        var random = random
        while !isOver.load(ordering: .relaxed) {
            if let squeeze {
                Self.takeAndGiveBack(squeeze)
            } else {
                victim.reclaim(&random)
                // Without a pause, no block would live long enough to be read twice.
                SteadyClock.sleep(.microseconds(20))
            }
        }
    }

    /// Touches `size` bytes of fresh memory. Under a limit, other pages have to be reclaimed for them.
    private static func takeAndGiveBack(_ size: ByteCount) {
        guard let memory = mmap(nil, size.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
            memory != MAP_FAILED
        else { return }
        let page = Int(sysconf(Int32(_SC_PAGESIZE)))
        for offset in stride(from: 0, to: size.bytes, by: page) {
            memory.storeBytes(of: 1, toByteOffset: offset, as: UInt8.self)
        }
        munmap(memory, size.bytes)
    }
}
