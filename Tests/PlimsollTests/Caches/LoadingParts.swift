import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Where loads wait until a test lets them go on, and how a test sees that others have lined up behind them.
struct HeldLoad {
    private let stream = AsyncStream.makeStream(of: Never.self)
    let begun = Counter()

    /// Waits, in a load.
    func wait() async {
        begun.add(1)
        for await _ in stream.stream {}
    }

    func open() { stream.continuation.finish() }

    /// Waits in a test until a load has come here.
    func isReached() async { await until { begun.value != 0 } }
}

/// What a thread of its own makes of a body that blocks.
func onThread<Result: Sendable>(_ body: @escaping @Sendable () throws -> Result) -> Task<Result, any Error> {
    Task {
        try await withCheckedThrowingContinuation { done in
            precondition(Thread.start("test") { done.resume(with: Swift.Result { try body() }) })
        }
    }
}

extension PurgeableCache {
    /// Waits until so many wait for the load of `key`.
    func hasLine(_ count: Int, for key: Key) async { await until { loads.lineLength(of: key) ?? 0 >= count } }
}
