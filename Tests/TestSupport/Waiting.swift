import Dispatch
public import Testing

/// The queue that paces `until(_:limit:sourceLocation:_:)`. Its thread is not one of the cooperative pool's, so a wait
/// leaves the pool to the work that is waited for.
private let pacer = DispatchQueue(label: "plimsoll.tests.waiting")

/// Suspends until `condition` holds, checking it once a millisecond, and records an issue when it does not in time.
///
/// The limit only ends what would hang. No test may depend on how long a wait takes.
/// - Parameters:
///   - what: The awaited state, for the issue's text.
///   - limit: The longest wait, on the real clock.
/// - Returns: Whether the condition came to hold.
@discardableResult
public func until(
    _ what: @autoclosure () -> String = "the awaited condition", limit: Duration = .seconds(60), sourceLocation: SourceLocation = #_sourceLocation,
    _ condition: () throws -> Bool
) async rethrows -> Bool {
    let end = ContinuousClock.now + limit
    while true {
        if try condition() { return true }
        guard ContinuousClock.now < end else {
            Issue.record("\(what()) did not come within \(limit)", sourceLocation: sourceLocation)
            return false
        }
        await withCheckedContinuation { (waiter: CheckedContinuation<Void, Never>) in
            pacer.asyncAfter(deadline: .now() + .milliseconds(1)) { waiter.resume() }
        }
    }
}
