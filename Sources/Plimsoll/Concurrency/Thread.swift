import CPlimsollProcess

/// Starts detached threads, and identifies the current thread.
package enum Thread {
    /// A function that starts threads as `start` does. Tests pass one that refuses.
    package typealias Starter = @Sendable (_ name: String, _ body: @escaping @Sendable () -> Void) -> Bool

    /// Runs `body` on a new thread named `name` (at most 15 bytes) with all signals blocked.
    ///
    /// - Returns: false if the process may start no more threads.
    package static func start(_ name: String, _ body: @escaping @Sendable () -> Void) -> Bool {
        let box = Unmanaged.passRetained(Body(body))
        let result = plimsoll_thread_start(
            name, { Unmanaged<Body>.fromOpaque($0!).takeRetainedValue().run() }, box.toOpaque())
        if result != 0 { box.release() }
        return result == 0
    }

    private final class Body: Sendable {
        let run: @Sendable () -> Void
        init(_ run: @escaping @Sendable () -> Void) { self.run = run }
    }

    /// Identifier of the current thread.
    package static var current: UInt { plimsoll_thread_id() }
}

/// A semaphore on which one thread waits until another thread unparks the first. An early `unpark` is remembered.
package final class Parker: Sendable {
    // A pointer to a C structure that guards itself with a mutex and lives as long as this object.
    private nonisolated(unsafe) let parker: OpaquePointer

    package init() { parker = plimsoll_parker_make() }
    deinit { plimsoll_parker_free(parker) }

    /// Waits for `unpark`, without a time limit if `limit` is `nil`. Returns false on timeout.
    @discardableResult
    package func park(atMost limit: Duration? = nil) -> Bool {
        plimsoll_park(parker, limit.map { max(0, $0.inNanoseconds) } ?? -1)
    }

    package func unpark() { plimsoll_unpark(parker) }
}
