import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// The threads that call handlers, while the process may start none.
@Suite(.timeLimit(.minutes(5))) struct HandlerThreadsTests {
    @Test func `T6 the first handlers get a thread each, and the cooperative pool calls them if no thread starts`() async {
        let asked = Counter(), called = Counter()
        let threads = HandlerThreads { _, _ in
            asked.add(1)
            return false
        }
        threads.run((0..<4).map { _ in { @Sendable in called.add(1) } })
        #expect(asked.value == 4)
        await until { called.value == 4 && threads.busy == 0 }
        await threads.run { called.add(1) }.value
        #expect(asked.value == 5 && called.value == 5)
    }
}
