import Synchronization

/// Outcomes and times of a cache's loads.
struct LoadRecord: ~Copyable, Sendable {
    // Relaxed everywhere: numbers that publish nothing else. Read one after another, they may differ by the loads
    // that end meanwhile.
    private let loads = Atomic<Int>(0)
    private let failures = Atomic<Int>(0)
    private let nanoseconds = Atomic<Int64>(0)
    private let rate = Atomic<UInt64>(RebuildRate().bits)

    /// Adds a load that made values with a total cost of `bytes`.
    func add(_ took: Duration, bytes: Int) {
        loads.wrappingAdd(1, ordering: .relaxed)
        nanoseconds.wrappingAdd(took.inNanoseconds, ordering: .relaxed)
        var bits = rate.load(ordering: .relaxed)
        while true {
            var next = RebuildRate(bits: bits)
            next.add(took, bytes: bytes)
            let (exchanged, now) = rate.weakCompareExchange(expected: bits, desired: next.bits, ordering: .relaxed)
            if exchanged { return }
            bits = now
        }
    }

    /// Adds a load that threw.
    func addFailure() { failures.wrappingAdd(1, ordering: .relaxed) }

    func tell(_ statistics: inout CacheStatistics) {
        statistics.loads = loads.load(ordering: .relaxed)
        statistics.loadFailures = failures.load(ordering: .relaxed)
        statistics.loadTime = .nanoseconds(nanoseconds.load(ordering: .relaxed))
    }

    var nanosecondsPerByte: Double? { RebuildRate(bits: rate.load(ordering: .relaxed)).nanosecondsPerByte }
}
