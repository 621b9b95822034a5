import Glibc
import Synchronization

/// A thread that may block, unlike a task on the cooperative pool.
package final class PlainThread {
    private var thread = pthread_t()

    private final class Body {
        let run: @Sendable () -> Void
        init(_ run: @escaping @Sendable () -> Void) { self.run = run }
    }

    /// Starts `body`; `nil` if the process may start no more threads.
    package init?(_ body: @escaping @Sendable () -> Void) {
        let box = Unmanaged.passRetained(Body(body))
        let result = pthread_create(
            &thread, nil,
            { context in
                Unmanaged<Body>.fromOpaque(context!).takeRetainedValue().run()
                return nil
            }, box.toOpaque())
        guard result == 0 else {
            box.release()
            return nil
        }
    }

    /// Runs `body` on a separate thread and suspends until `body` ends. The pool may have only one thread, and the
    /// manager needs that thread.
    package static func run<Value: Sendable>(_ body: @escaping @Sendable () throws -> Value) async throws -> Value {
        try await withCheckedThrowingContinuation { (done: CheckedContinuation<Value, any Error>) in
            let thread = PlainThread { done.resume(with: Result(catching: body)) }
            guard let thread else { return done.resume(throwing: Failure.failed("cannot start a thread")) }
            thread.detach()
        }
    }

    package func join() { pthread_join(thread, nil) }
    package func detach() { pthread_detach(thread) }
}

/// A number that several threads add to.
final class Counter: Sendable {
    // Relaxed ordering throughout: a number on its own.
    private let number = Atomic<Int>(0)

    var count: Int { number.load(ordering: .relaxed) }
    func add() { number.wrappingAdd(1, ordering: .relaxed) }
    func set(_ count: Int) { number.store(count, ordering: .relaxed) }
}
