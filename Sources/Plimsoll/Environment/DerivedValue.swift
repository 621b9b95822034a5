import Synchronization

/// Something made from the environment, such as a formatter: made anew on the first use after what it was made from has changed (C65).
///
/// ```swift
/// let formatter = DerivedValue("dates", dependsOn: [.timeZone, .locale]) { makeFormatter() }
/// manager.lifecycle.register(formatter)
/// formatter.value.string(from: date)
/// ```
/// As long as it isn't registered nothing changes it but `invalidate()`. A use costs one atomic load and a short lock of its own.
public final class DerivedValue<Value: Sendable>: Sendable {
    private struct State {
        var value: Value?
        /// The epoch that `value` was begun in.
        var epoch: UInt64 = 0
        /// The thread that makes a new one, or 0.
        var builder: UInt = 0
        var waiting: [Parker] = []
    }

    /// What it is called in messages.
    public let name: String
    /// What it is made from.
    public let kinds: Set<EnvironmentChange.Kind>
    private let make: @Sendable () -> Value
    private let state = Mutex(State())
    // Released with what changed, acquired by whoever uses the value: what is made after that is made from the new.
    private let epochNumber = Atomic<UInt64>(1)

    /// A value that `make` makes, on the thread that first uses it.
    public init(_ name: String, dependsOn kinds: Set<EnvironmentChange.Kind>, make: @escaping @Sendable () -> Value) {
        self.name = name
        self.kinds = kinds
        self.make = make
    }

    /// Grows by one each time the value becomes out of date.
    public var epoch: UInt64 { epochNumber.load(ordering: .acquiring) }

    /// Has it made anew at the next use.
    public func invalidate() { epochNumber.wrappingAdd(1, ordering: .acquiringAndReleasing) }

    /// The value of the present epoch. The first who uses it makes it, without any lock; others wait for that one.
    ///
    /// - Precondition: `make` does not use it.
    public var value: Value {
        while true {
            let now = epoch
            let (ready, parker): (Value?, Parker?) = state.withLock { state in
                if let value = state.value, state.epoch >= now { return (value, nil) }
                precondition(state.builder != Thread.current, "DerivedValue \"\(name)\" is used by what makes it")
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
        // The old value leaves the lock before it is released.
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

/// Whatever becomes out of date by changes of `kinds`.
protocol Derived: AnyObject, Sendable {
    var kinds: Set<EnvironmentChange.Kind> { get }
    func invalidate()
}

extension DerivedValue: Derived {}
