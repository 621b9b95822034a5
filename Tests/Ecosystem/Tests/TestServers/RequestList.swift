import Synchronization
import Testing

private let isTaken = Mutex(false)

/// Runs `body` while no other test does anything with the budgets of requests, whose list and counts are the process's.
public func withRequestList<Success>(_ body: () async throws -> Success) async throws -> Success {
    await until("the list of requests") { isTaken.withLock { isTaken in !exchange(&isTaken, true) } }
    defer { isTaken.withLock { $0 = false } }
    return try await body()
}

private func exchange(_ place: inout Bool, _ value: Bool) -> Bool {
    defer { place = value }
    return place
}
