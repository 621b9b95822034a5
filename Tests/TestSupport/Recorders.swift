import Plimsoll
import Synchronization

/// A list that many threads append to.
package final class Log<Element: Sendable>: Sendable {
    private let elements = Mutex<[Element]>([])

    package init() {}

    package func add(_ element: Element) { elements.withLock { $0.append(element) } }
    package var all: [Element] { elements.withLock { $0 } }
}

/// A number that many threads change.
package final class Counter: Sendable {
    private let number = Atomic<Int>(0)

    package init() {}

    package func add(_ step: Int) { number.wrappingAdd(step, ordering: .sequentiallyConsistent) }
    package var value: Int { number.load(ordering: .sequentiallyConsistent) }
}

/// A barrier that blocks its callers until the barrier is opened.
package final class Blockade: Sendable {
    private let isOpen = Atomic<Bool>(false)
    private let held = Atomic<Int>(0)
    private let parker = Parker()

    package init() {}

    /// Number of callers blocked so far.
    package var count: Int { held.load(ordering: .sequentiallyConsistent) }
    package func open() { isOpen.store(true, ordering: .releasing) }
    package func wait() {
        held.wrappingAdd(1, ordering: .sequentiallyConsistent)
        while !isOpen.load(ordering: .acquiring) { parker.park(atMost: .milliseconds(1)) }
    }
}

/// Runs `body`, which blocks, on a thread of its own.
package func onThread<Value: Sendable>(_ body: @escaping @Sendable () -> Value) async -> Value {
    await withCheckedContinuation { done in
        let started = Thread.start("test") { done.resume(returning: body()) }
        precondition(started)
    }
}

/// Returns an address on the calling thread's stack. The address differs by the caller's depth.
@inline(never) public func stackAddress() -> UInt {
    var place = 0
    return withUnsafeMutablePointer(to: &place) { UInt(bitPattern: $0) }
}
