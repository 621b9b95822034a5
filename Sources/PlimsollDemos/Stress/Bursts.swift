import Glibc
import Plimsoll
import PlimsollTesting

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
