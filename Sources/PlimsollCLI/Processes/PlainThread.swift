import Glibc

/// A thread that may block, which a task on the cooperative pool must not.
final class PlainThread {
    private var thread = pthread_t()

    private final class Body {
        let run: @Sendable () -> Void
        init(_ run: @escaping @Sendable () -> Void) { self.run = run }
    }

    /// Starts `body`; `nil` if the process may start no more threads.
    init?(_ body: @escaping @Sendable () -> Void) {
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

    func join() { pthread_join(thread, nil) }
    func detach() { pthread_detach(thread) }
}
