#if NIO
public import NIOCore
public import Plimsoll

extension AsyncSequence where Element == ByteBuffer, Self: Sendable {
    /// Charges each buffer of a body to `budget` as the buffer arrives, because the event loop's thread has allocated
    /// the buffer, and the request's task frees the buffer. `MemoryBudgetMiddleware` does so by itself.
    ///
    ///     for try await chunk in body.charged(to: budget) { … }
    public func charged(to budget: MemoryBudget) -> some AsyncSequence<ByteBuffer, Failure> & Sendable {
        ChargedSequence(self, to: budget) { $0.readableBytes }
    }
}
#endif
