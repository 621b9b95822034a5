import CPlimsollMemory

/// A sequence whose elements count for a budget as they arrive, although another thread has allocated them.
///
/// While the allocator counts for budgets, each element is copied by the task that asks for it, and counts until the
/// application frees the copy. The original may lie in a buffer of a pool, which no free ever credits; if not, its free
/// is not credited either. An original that the same task has allocated counts until the budget ends. Without such an
/// allocator each element is charged, and stays charged until the budget ends.
package struct ChargedSequence<Base: AsyncSequence>: AsyncSequence {
    package typealias Element = Base.Element
    package typealias Failure = Base.Failure

    private let base: Base
    private let budget: MemoryBudget
    private let bytes: @Sendable (Base.Element) -> Int
    private let copy: @Sendable (Base.Element) -> Base.Element

    package init(
        _ base: Base, to budget: MemoryBudget, bytes: @escaping @Sendable (Base.Element) -> Int,
        copy: @escaping @Sendable (Base.Element) -> Base.Element
    ) {
        (self.base, self.budget, self.bytes, self.copy) = (base, budget, bytes, copy)
    }

    package func makeAsyncIterator() -> Iterator {
        Iterator(base: base.makeAsyncIterator(), budget: budget, bytes: bytes, copy: copy)
    }

    package struct Iterator: AsyncIteratorProtocol {
        fileprivate var base: Base.AsyncIterator
        fileprivate let budget: MemoryBudget
        fileprivate let bytes: @Sendable (Base.Element) -> Int
        fileprivate let copy: @Sendable (Base.Element) -> Base.Element

        package mutating func next() async throws(Base.Failure) -> Base.Element? { try await next(isolation: nil) }

        package mutating func next(isolation actor: isolated (any Actor)?) async throws(Base.Failure) -> Base.Element? {
            var original = try await base.next(isolation: actor)
            guard BudgetRegistry.isMetered else {
                if let original { budget.charge(ByteCount(bytes(original))) }
                return original
            }
            let own = original.map(copy)
            plimsoll_budget_settle(MemoryBudget.current?.counters)
            // Not every original lies in a pool. What is freed here, another thread has allocated: nobody is credited.
            original = nil
            plimsoll_budget_settle(nil)
            return own
        }
    }
}

extension ChargedSequence: Sendable where Base: Sendable {}
