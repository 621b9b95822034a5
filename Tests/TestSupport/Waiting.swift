import Dispatch
public import Glibc
public import Testing

/// The queue that paces `until(_:limit:sourceLocation:_:)`. The queue's thread is outside the cooperative pool, so a
/// wait leaves the pool to the awaited work.
private let pacer = DispatchQueue(label: "plimsoll.tests.waiting")

/// The time left of a wait's limit.
///
/// Each check subtracts at most a hundredth of the limit. On a busy machine minutes may pass before the pool runs a
/// task again, and the task that would make the condition hold waits in the same queue. A host may also pause its
/// machines.
private struct Patience {
    private let most: Duration
    private var left: Duration
    private var last = ContinuousClock.now

    init(_ limit: Duration) {
        left = limit
        most = limit / 100
    }

    /// Returns false once the limit has passed.
    mutating func allowsAnother() -> Bool {
        let now = ContinuousClock.now
        left -= min(now - last, most)
        last = now
        return left > .zero
    }
}

/// Suspends until `condition` holds, with one check each millisecond, and records an issue if the limit passes first.
///
/// The limit only ends a wait that would hang. No test may depend on the length of a wait.
/// - Parameters:
///   - what: The awaited state, for the issue's text.
///   - limit: The longest wait, on the real clock.
///   - condition: The condition, which may also cause the awaited state, for example by moving a manual clock.
/// - Returns: True if the condition came to hold.
@discardableResult
public func until(
    _ what: @autoclosure () -> String = "the awaited condition", limit: Duration = .seconds(240), sourceLocation: SourceLocation = #_sourceLocation,
    _ condition: () async throws -> Bool
) async rethrows -> Bool {
    var patience = Patience(limit)
    while true {
        if try await condition() { return true }
        guard patience.allowsAnother() else {
            Issue.record("\(what()) did not come within \(limit)", sourceLocation: sourceLocation)
            return false
        }
        await withCheckedContinuation { (waiter: CheckedContinuation<Void, Never>) in
            pacer.asyncAfter(deadline: .now() + .milliseconds(1)) { waiter.resume() }
        }
    }
}

/// Blocks the calling thread until `condition` holds, with one check each millisecond, and records an issue if the
/// limit passes first.
///
/// For a test's own threads and for bodies that cannot suspend. Other code uses `until(_:limit:sourceLocation:_:)`.
/// - Parameters:
///   - what: The awaited state, for the issue's text.
///   - limit: The longest wait, on the real clock.
///   - condition: The condition, which may also cause the awaited state.
/// - Returns: True if the condition came to hold.
@discardableResult
public func blockUntil(
    _ what: @autoclosure () -> String = "the awaited condition", limit: Duration = .seconds(240), sourceLocation: SourceLocation = #_sourceLocation,
    _ condition: () throws -> Bool
) rethrows -> Bool {
    var patience = Patience(limit)
    while !(try condition()) {
        guard patience.allowsAnother() else {
            Issue.record("\(what()) did not come within \(limit)", sourceLocation: sourceLocation)
            return false
        }
        usleep(1000)
    }
    return true
}

/// Suspends until the task is cancelled, like work without another end.
/// - Throws: `CancellationError`.
public func untilCancelled(sourceLocation: SourceLocation = #_sourceLocation) async throws {
    await until("the cancellation", sourceLocation: sourceLocation) { Task.isCancelled }
    try Task.checkCancellation()
}

/// Suspends `times` times, like work with something to await, and lets other tasks run first.
///
/// This call waits for no condition. Use `until(_:limit:sourceLocation:_:)` to wait for one.
public func giveWay(_ times: Int = 1) async { for _ in 0..<times { await Task.yield() } }

/// Delays the calling thread where the delay is under test, such as between two steps of a race.
///
/// This call waits for no condition. Use `until` or `blockUntil` to wait for one.
public func nap(_ microseconds: UInt32) { usleep(microseconds) }

/// The kernel's id of the calling thread.
public var threadNumber: pid_t {
    var text = [CChar](repeating: 0, count: 64)
    let count = readlink("/proc/thread-self", &text, text.count)
    let path = text.prefix(max(0, count)).map { UInt8(bitPattern: $0) }
    return pid_t(String(decoding: path.split(separator: UInt8(ascii: "/")).last ?? [], as: UTF8.self)) ?? 0
}

/// Returns true if a thread of this process waits in the kernel, as for a lock.
public func isBlocked(_ thread: pid_t) -> Bool {
    guard let file = fopen("/proc/self/task/\(thread)/stat", "r") else { return false }
    defer { fclose(file) }
    var line = [CChar](repeating: 0, count: 256)
    guard fgets(&line, 256, file) != nil else { return false }
    // The state follows the name of the thread, which stands in parentheses.
    guard let name = line.lastIndex(of: CChar(UInt8(ascii: ")"))), name + 2 < line.count else { return false }
    return line[name + 2] == CChar(UInt8(ascii: "S"))
}
