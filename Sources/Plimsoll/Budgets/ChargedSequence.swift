/// A sequence whose elements are charged to a budget as they arrive, because another thread has allocated them.
package struct ChargedSequence<Base: AsyncSequence>: AsyncSequence {
    package typealias Element = Base.Element
    package typealias Failure = Base.Failure

    private let base: Base
    private let budget: MemoryBudget
    private let bytes: @Sendable (Base.Element) -> Int

    package init(_ base: Base, to budget: MemoryBudget, bytes: @escaping @Sendable (Base.Element) -> Int) {
        (self.base, self.budget, self.bytes) = (base, budget, bytes)
    }

    package func makeAsyncIterator() -> Iterator {
        Iterator(base: base.makeAsyncIterator(), budget: budget, bytes: bytes)
    }

    package struct Iterator: AsyncIteratorProtocol {
        fileprivate var base: Base.AsyncIterator
        fileprivate let budget: MemoryBudget
        fileprivate let bytes: @Sendable (Base.Element) -> Int

        package mutating func next() async throws(Base.Failure) -> Base.Element? { try await next(isolation: nil) }

        package mutating func next(isolation actor: isolated (any Actor)?) async throws(Base.Failure) -> Base.Element? {
            let element = try await base.next(isolation: actor)
            if let element { budget.charge(ByteCount(bytes(element))) }
            return element
        }
    }
}

extension ChargedSequence: Sendable where Base: Sendable {}
