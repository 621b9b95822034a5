import CPlimsollProcess

/// A detached thread of our own.
package enum Thread {
    /// A function that starts threads as `start` does. Tests pass one that refuses.
    typealias Starter = @Sendable (_ name: String, _ body: @escaping @Sendable () -> Void) -> Bool

    /// Runs `body` on a new thread of that name (at most 15 bytes) with all signals blocked.
    ///
    /// - Returns: false if the process may start no more threads.
    package static func start(_ name: String, _ body: @escaping @Sendable () -> Void) -> Bool {
        let box = Unmanaged.passRetained(Body(body))
        let result = plimsoll_thread_start(name, { Unmanaged<Body>.fromOpaque($0!).takeRetainedValue().run() }, box.toOpaque())
        if result != 0 { box.release() }
        return result == 0
    }

    private final class Body: Sendable {
        let run: @Sendable () -> Void
        init(_ run: @escaping @Sendable () -> Void) { self.run = run }
    }

    /// Tells the current thread from others.
    static var current: UInt { plimsoll_thread_id() }
}

/// A place where one thread waits until another wakes it. An early wake-up is kept.
package final class Parker: Sendable {
    // A pointer to a C structure that guards itself with a mutex and lives as long as this object.
    private nonisolated(unsafe) let parker: OpaquePointer

    package init() { parker = plimsoll_parker_make() }
    deinit { plimsoll_parker_free(parker) }

    /// Waits for `unpark`, for ever without a limit. False if the time ran out.
    @discardableResult
    package func park(atMost limit: Duration? = nil) -> Bool {
        plimsoll_park(parker, limit.map { max(0, $0.inNanoseconds) } ?? -1)
    }

    package func unpark() { plimsoll_unpark(parker) }
}
