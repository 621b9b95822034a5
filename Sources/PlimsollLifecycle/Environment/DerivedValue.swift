import Plimsoll
import Synchronization

/// A value computed from the environment, such as a formatter. Rebuilt on the first use after a change of the inputs
/// (C65).
///
/// ```swift
/// let formatter = DerivedValue("dates", dependsOn: [.timeZone, .locale]) { makeFormatter() }
/// manager.lifecycle.register(formatter)
/// formatter.value.string(from: date)
/// ```
/// Until the value is registered, only `invalidate()` makes it out of date. A use costs one atomic load and a short
/// private lock.
public final class DerivedValue<Value: Sendable>: Sendable {
    private struct State {
        var value: Value?
        /// The epoch in which the building of `value` began.
        var epoch: UInt64 = 0
        /// The thread that builds a new value, or 0.
        var builder: UInt = 0
        var waiting: [Parker] = []
    }

    /// The name used in messages.
    public let name: String
    /// The kinds of change that make the value out of date.
    public let kinds: Set<EnvironmentChange.Kind>
    private let make: @Sendable () -> Value
    private let state = Mutex(State())
    // Released with the change, acquired by each use: a value built after that is built from the new state.
    private let epochNumber = Atomic<UInt64>(1)

    /// Creates a value that `make` builds, on the first thread that uses the value.
    public init(_ name: String, dependsOn kinds: Set<EnvironmentChange.Kind>, make: @escaping @Sendable () -> Value) {
        self.name = name
        self.kinds = kinds
        self.make = make
    }

    /// Number of invalidations plus one. Grows by one each time the value becomes out of date.
    public var epoch: UInt64 { epochNumber.load(ordering: .acquiring) }

    /// Marks the value as out of date: the next use rebuilds it.
    public func invalidate() { epochNumber.wrappingAdd(1, ordering: .acquiringAndReleasing) }

    /// The value of the present epoch. The first thread to use the value builds it, holding no lock. Other threads wait
    /// for that thread.
    ///
    /// - Precondition: `make` does not use this value.
    public var value: Value {
        while true {
            let now = epoch
            let (ready, parker): (Value?, Parker?) = state.withLock { state in
                if let value = state.value, state.epoch >= now { return (value, nil) }
                precondition(
                    state.builder != Thread.current, "DerivedValue \"\(name)\" is read from within its own builder")
                guard state.builder != 0 else {
                    state.builder = Thread.current
                    return (nil, nil)
                }
                let parker = Parker()
                state.waiting.append(parker)
                return (nil, parker)
            }
            if let ready { return ready }
            guard let parker else { return finish(make(), now) }
            parker.park()
        }
    }

    private func finish(_ value: Value, _ epoch: UInt64) -> Value {
        // The old value is moved out of the lock before it is released.
        let (old, waiting) = state.withLock { state in
            defer {
                state.value = value
                state.epoch = epoch
                state.builder = 0
                state.waiting = []
            }
            return (state.value, state.waiting)
        }
        for parker in waiting { parker.unpark() }
        withExtendedLifetime(old) {}
        return value
    }
}

/// An object that changes of `kinds` make out of date.
protocol Derived: AnyObject, Sendable {
    var kinds: Set<EnvironmentChange.Kind> { get }
    func invalidate()
}

extension DerivedValue: Derived {}
