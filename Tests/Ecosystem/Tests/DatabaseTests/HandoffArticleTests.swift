import Plimsoll
import PlimsollGRDB
import PlimsollLifecycle
import PlimsollTesting
import Synchronization
import TestServers
import Testing

/// The snippets of `docs/Adapters.md` about handing tasks over.
@Suite(.timeLimit(.minutes(5))) struct HandoffArticleTests {
    @Test func `a task finishes here, or is handed over and finishes there`() async throws {
        let directory = try TemporaryDirectory("article"), path = directory.path("tasks"), manager = ResourceManager(source: ScriptedPressureSource())
        let exported = Mutex<[[UInt8]?]>([])
        @Sendable @discardableResult
        func export(from start: [UInt8]?, _ save: ([UInt8]) -> Void) async throws -> Int {
            save([1])
            return exported.withLock { exported in
                exported.append(start)
                return exported.count
            }
        }
        let store = try SQLiteTaskHandoff(path: path)
        let outcome = try await manager.withBackgroundTask("export", handoff: store) { task, checkpoint in
            try await export(from: checkpoint.start) { checkpoint.save($0) }
        }
        #expect(outcome == 1)
        _ = try await store.offer(HandedOffTask(name: "export", checkpoint: [7], reason: .shutdown), heldBy: "another", for: .zero)
        let replica = Task {
            await manager.resumeHandedOff(from: store, names: ["export"]) { task, checkpoint in
                try await export(from: checkpoint.start) { checkpoint.save($0) }
            }
        }
        try await untilAnswer { try await store.census() == (0, 0, 0) }
        replica.cancel()
        await replica.value
        #expect(exported.withLock { $0 } == [nil, [7]])
    }

    @Test func `the article's snippets match this file`() throws { #expect(try Article.missingLines(of: "Handing tasks over", in: #filePath) == []) }
}
