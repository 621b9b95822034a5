#if NIO
public import NIOCore
public import Plimsoll

extension AsyncSequence where Element == ByteBuffer, Self: Sendable {
    /// Counts each buffer of a body for a budget as the buffer arrives, although the event loop's thread has allocated
    /// the buffer. While the allocator counts for budgets (`Jemalloc.meterRequests()`), each buffer is a copy, which the
    /// budget of the calling task holds until the copy is released. Otherwise each buffer is charged to `budget`, and
    /// stays charged until the budget ends. `MemoryBudgetMiddleware` does so by itself.
    ///
    ///     for try await chunk in body.charged(to: budget) { … }
    public func charged(to budget: MemoryBudget) -> some AsyncSequence<ByteBuffer, Failure> & Sendable {
        ChargedSequence(
            self, to: budget, bytes: { $0.readableBytes }, copy: { ByteBuffer(bytes: $0.readableBytesView) })
    }
}
#endif
