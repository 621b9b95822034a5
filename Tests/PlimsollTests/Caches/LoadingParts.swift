import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// A gate that holds loads until a test opens the gate. The test can see the callers that wait for a load.
final class HeldLoad: Sendable {
    private let doors = Mutex<(isOpen: Bool, waiting: [AsyncStream<Never>.Continuation])>((false, []))
    let begun = Counter()

    /// Waits in a load until the test opens the gate or the task is cancelled.
    func wait() async {
        // A stream for each caller, because the cancellation of one reader ends a stream for all readers.
        let (stream, door) = AsyncStream.makeStream(of: Never.self)
        doors.withLock { doors in if doors.isOpen { door.finish() } else { doors.waiting.append(door) } }
        begun.add(1)
        for await _ in stream {}
    }

    func open() {
        let waiting = doors.withLock { doors in
            doors.isOpen = true
            return doors.waiting
        }
        for door in waiting { door.finish() }
    }

    /// Waits in a test until a load has arrived.
    func isReached() async { await until { begun.value != 0 } }
}

/// Runs a blocking body on a separate thread, and returns a task with the result.
func onThread<Result: Sendable>(_ body: @escaping @Sendable () throws -> Result) -> Task<Result, any Error> {
    Task {
        try await withCheckedThrowingContinuation { done in
            precondition(Thread.start("test") { done.resume(with: Swift.Result { try body() }) })
        }
    }
}

extension PurgeableCache {
    /// Waits until `count` callers wait for the load of `key`.
    func hasLine(_ count: Int, for key: Key) async { await until { loads.lineLength(of: key) ?? 0 >= count } }
}
