import Synchronization

/// A number that several threads add to.
final class Counter: Sendable {
    // Relaxed ordering throughout: a number on its own.
    private let number = Atomic<Int>(0)

    var count: Int { number.load(ordering: .relaxed) }
    func add() { number.wrappingAdd(1, ordering: .relaxed) }
    func set(_ count: Int) { number.store(count, ordering: .relaxed) }
}
