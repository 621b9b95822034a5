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

    /// A starter that keeps the body of each thread, and starts no thread by itself.
    private final class Script: Sendable {
        private struct State {
            var asked = 0
            var bodies: [@Sendable () -> Void] = []
        }

        private let state = Mutex(State())

        /// Number of threads asked for so far.
        var asked: Int { state.withLock { $0.asked } }

        func start(_ name: String, _ body: @escaping @Sendable () -> Void) -> Bool {
            state.withLock { state in
                state.asked += 1
                state.bodies.append(body)
            }
            return true
        }

        /// Returns the bodies kept since the last call.
        func take() -> [@Sendable () -> Void] { state.withLock { exchange(&$0.bodies, []) } }
    }

    private static let nothing: @Sendable () -> Void = {}

    @Test(
        arguments: [
            (0, 256, 0), (1, 256, 1), (3, 256, 3), (4, 256, 4), (5, 256, 5), (20, 256, 5), (1, 2, 1), (2, 2, 2), (3, 2, 3),
            (20, 2, 3), (20, 4, 5),
        ])
    func `the first four handlers get a thread each, and one more stands by for the rest`(jobs: Int, most: Int, asked: Int) {
        let script = Script(), threads = HandlerThreads(most: most, startThread: script.start)
        threads.run(Array(repeating: Self.nothing, count: jobs))
        #expect(script.asked == asked && threads.busy == jobs + min(jobs, most, 4))
    }

    @Test func `handlers that come one by one get four threads and one that stands by`() {
        let script = Script(), threads = HandlerThreads(startThread: script.start)
        var asked: [Int] = []
        for _ in 0..<6 {
            threads.run([Self.nothing])
            asked.append(script.asked)
        }
        #expect(asked == [1, 3, 4, 5, 5, 5] && threads.busy == 10)
    }

    @Test func `idle threads are woken before any is started, and one that stood by in vain is replaced`() {
        let script = Script(), called = Counter(), threads = HandlerThreads(startThread: script.start)
        func run(_ count: Int) { threads.run((0..<count).map { _ in { @Sendable in called.add(1) } }) }
        // Blocks the thread: a task that waits for a thread of the pool may be so late that idle threads have left.
        run(5)
        let bodies = script.take()
        for body in bodies.prefix(4) { #expect(Thread.start("test", body)) }
        blockUntil("the first calls") { called.value == 5 && threads.busy == 0 }
        // Nothing waits any more.
        bodies[4]()
        run(1)
        blockUntil("one call") { called.value == 6 && threads.busy == 0 }
        run(4)
        blockUntil("four calls") { called.value == 10 && threads.busy == 0 }
        #expect(script.asked == 5)
        run(5)
        #expect(script.asked == 6)
        blockUntil("the last calls") { called.value == 15 }
    }

    @Test func `the cooperative pool is asked again and again while no thread starts`() async {
        let called = Counter(), threads = HandlerThreads { _, _ in false }
        for round in 1...12 {
            await threads.run { called.add(1) }.value
            #expect(called.value == round)
        }
        await until { threads.busy == 0 }
    }
}
