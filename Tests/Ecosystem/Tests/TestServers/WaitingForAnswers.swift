public import Testing

/// Suspends until `condition`, which itself waits for an answer, holds. Records an issue if the limit passes first.
///
/// The checks have the pace of `until(_:limit:sourceLocation:_:)`.
/// - Returns: True if the condition came to hold.
@discardableResult
public func untilAnswer(
    _ what: @autoclosure () -> String = "the awaited answer", limit: Duration = .seconds(240),
    sourceLocation: SourceLocation = #_sourceLocation,
    _ condition: () async throws -> Bool
) async rethrows -> Bool {
    let end = ContinuousClock.now + limit
    while true {
        if try await condition() { return true }
        guard ContinuousClock.now < end else {
            Issue.record("\(what()) did not come within \(limit)", sourceLocation: sourceLocation)
            return false
        }
        // Checked twice, so a millisecond apart.
        var checks = 0
        await until("a millisecond", sourceLocation: sourceLocation) {
            checks += 1
            return checks > 1
        }
    }
}
