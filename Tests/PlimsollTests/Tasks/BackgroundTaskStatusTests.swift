import Foundation
import Testing

@testable import Plimsoll

/// The status of a background task in JSON.
@Suite struct BackgroundTaskStatusTests {
    @Test func `a status is the same when read back, with and without progress`() throws {
        for (completed, total) in [(0, 0), (3, 10)] {
            let status = BackgroundTaskStatus(
                name: "export", age: .seconds(2), isExpiring: total > 0, origin: "file:1", completed: completed, total: total)
            let text = try JSONEncoder().encode(status)
            let back = try JSONDecoder().decode(BackgroundTaskStatus.self, from: text)
            #expect(back == status)
        }
    }
}
