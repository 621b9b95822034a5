import PlimsollTesting
import Testing

@testable import Plimsoll

/// The lists of running and of expiring tasks, which share the links of the records.
@Suite struct BackgroundTaskListTests {
    private func names(_ list: BackgroundTaskList) -> [String] {
        var names: [String] = []
        list.forEach { names.append($0.name) }
        return names
    }

    @Test func `a record that moves to another list has no neighbour of its former list`() throws {
        let registry = ResourceManager(source: ScriptedPressureSource()).parts.tasks
        let shard = try #require(registry.shards.first)
        let records = ["a", "b", "c", "d"].map {
            BackgroundTaskRecord($0, "file", 1, begun: .zero, shard: shard, handler: nil)
        }
        var running = BackgroundTaskList(), expiring = BackgroundTaskList()
        for record in records { running.append(Unmanaged.passRetained(record)) }
        // A list passes its reference to the caller that removes a record.
        func release(_ record: BackgroundTaskRecord) { Unmanaged.passUnretained(record).release() }
        running.remove(records[1])
        release(records[1])
        #expect(names(running) == ["a", "c", "d"])
        let popped = running.popFirst(), first = try #require(popped)
        expiring.append(first)
        #expect(names(running) == ["c", "d"] && names(expiring) == ["a"])
        expiring.remove(records[0])
        release(records[0])
        #expect(expiring.isEmpty && names(running) == ["c", "d"])
        running.remove(records[3])
        release(records[3])
        running.append(Unmanaged.passRetained(records[0]))
        #expect(names(running) == ["c", "a"])
        expiring.append(contentsOf: &running)
        #expect(running.isEmpty && names(expiring) == ["c", "a"])
        while let record = expiring.popFirst() { record.release() }
        #expect(expiring.isEmpty)
    }
}
