extension BudgetRegistry {
    /// The signal `"requests"` of a manager's capabilities: tells if the allocator counts the memory of requests, and
    /// what to do if not. Nothing is guessed without such a count.
    package static var signal: Capabilities.Signal {
        guard !isMetered else { return .init("requests", isLive: true, "the allocator counts the memory of requests") }
        return .init(
            "requests", isLive: false, "the memory of requests is not counted: \(HeapAllocator.current.signal.detail)",
            remedy: "to give requests budgets, link PlimsollJemalloc (jemalloc 5.3 or later) and call"
                + " Jemalloc.meterRequests() at the start")
    }
}
