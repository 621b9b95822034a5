import Glibc
import Plimsoll
import PlimsollTesting
import Synchronization

/// Something volatile with known contents, to be read while the kernel takes it.
protocol Tortured: Sendable {
    /// Reads one piece chosen by `random` and checks every byte; makes the piece anew if it was gone.
    func read(_ random: inout SeededGenerator) -> Torture.Tally

    /// Has the kernel take some of it now.
    func reclaim(_ random: inout SeededGenerator)
}

/// Several threads read and check what another one makes the kernel take.
final class Torture: Sendable {
    /// What was done and found.
    struct Tally {
        /// Pages made readable and found to be what they should, word for word.
        var reads = 0
        var wrongBytes = 0
        /// Pieces found gone.
        var dropped = 0
    }

    private let victim: any Tortured
    private let seed: UInt64
    /// Memory taken and given back over and over to force reclaim; `nil` to ask for it page by page.
    private let squeeze: ByteCount?
    // Relaxed: sums, and a flag that publishes nothing; the threads are joined before the sums are told.
    private let reads = Atomic<Int>(0)
    private let wrongBytes = Atomic<Int>(0)
    private let dropped = Atomic<Int>(0)
    private let isOver = Atomic<Bool>(false)

    init(_ victim: any Tortured, seed: UInt64, squeeze: ByteCount? = nil) {
        self.victim = victim
        self.seed = seed
        self.squeeze = squeeze
    }

    /// Fewer pieces that the kernel has taken prove little: on a busy machine much may be read before it takes any.
    private static let leastDropped = 100

    /// Goes on until that much was read while the kernel took some, or the time is up.
    func run(readers: Int, reads goal: Int, for length: Duration) throws -> Tally {
        let start = SteadyClock.now
        var threads = (0..<readers).compactMap { reader in PlainThread { [self] in read(SeededGenerator(seed: seed &+ UInt64(reader))) } }
        if let force = PlainThread({ [self] in force(SeededGenerator(seed: seed &- 1)) }) { threads.append(force) }
        defer {
            isOver.store(true, ordering: .relaxed)
            for thread in threads { thread.join() }
        }
        guard threads.count == readers + 1 else { throw Failure.failed("no thread could be started") }
        while reads.load(ordering: .relaxed) < goal || dropped.load(ordering: .relaxed) < Self.leastDropped, SteadyClock.now - start < length {
            SteadyClock.sleep(.milliseconds(10))
        }
        isOver.store(true, ordering: .relaxed)
        for thread in threads { thread.join() }
        threads = []
        return Tally(
            reads: reads.load(ordering: .relaxed), wrongBytes: wrongBytes.load(ordering: .relaxed), dropped: dropped.load(ordering: .relaxed))
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
                // Without a pause nothing would live long enough to be read twice.
                SteadyClock.sleep(.microseconds(20))
            }
        }
    }

    /// Touches `size` bytes of fresh memory, for which under a limit others have to go.
    private static func takeAndGiveBack(_ size: ByteCount) {
        guard let memory = mmap(nil, size.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), memory != MAP_FAILED else { return }
        let page = Int(sysconf(Int32(_SC_PAGESIZE)))
        for offset in stride(from: 0, to: size.bytes, by: page) { memory.storeBytes(of: 1, toByteOffset: offset, as: UInt8.self) }
        munmap(memory, size.bytes)
    }
}
