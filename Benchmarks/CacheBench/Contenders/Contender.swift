/// A contender in a race: a cache, ready for requests of a workload's keys.
protocol Contender: AnyObject {
    var name: String { get }
    /// Performs the workload's operations on `threads` threads for about `length`, from the positions of the last run
    /// on.
    func run(threads: Int, for length: Duration) throws -> Heat
}

/// A cache in this process, and the keys that each thread requests.
final class LocalContender<Key: Sendable>: Contender {
    let name: String
    private let streams: [[Key]]
    private let work: @Sendable (UnsafeBufferPointer<Key>) -> (hits: Int, weight: Int)
    private let positions: [Position]

    /// The position at which a thread stopped. Only that thread accesses the position, and later readers have joined
    /// the thread.
    private final class Position: @unchecked Sendable {
        var next = 0
        /// The sum of the values' weights: the optimizer removes no look-up whose result counts.
        var weight = 0
    }

    /// Operations between two readings of the clock.
    private static var chunk: Int { 1024 }

    /// - Parameters:
    ///   - streams: a stream for each thread, in whole chunks.
    ///   - work: one pass over some of a stream's keys.
    init(
        _ name: String, _ streams: [[Key]],
        _ work: @escaping @Sendable (UnsafeBufferPointer<Key>) -> (hits: Int, weight: Int)
    ) {
        precondition(
            streams.allSatisfy { !$0.isEmpty && $0.count % Self.chunk == 0 }, "\(name): streams are not in whole chunks"
        )
        self.name = name
        self.streams = streams
        self.work = work
        positions = streams.map { _ in Position() }
    }

    func run(threads: Int, for length: Duration) throws -> Heat {
        let (streams, positions, work) = (streams, positions, work)
        return try Crew.run(threads, for: length) { thread in
            let position = positions[thread]
            let (hits, weight) = streams[thread].withUnsafeBufferPointer {
                work(UnsafeBufferPointer(rebasing: $0[position.next..<position.next + Self.chunk]))
            }
            position.next = (position.next + Self.chunk) % streams[thread].count
            position.weight &+= weight
            return (Self.chunk, hits)
        }
    }
}
