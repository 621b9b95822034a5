import Synchronization

/// How a cache's loads went.
struct LoadRecord: ~Copyable, Sendable {
    // Relaxed everywhere: numbers that publish nothing else. Read one after another, they may be apart by what ends meanwhile.
    private let loads = Atomic<Int>(0)
    private let failures = Atomic<Int>(0)
    private let nanoseconds = Atomic<Int64>(0)
    private let rate = Atomic<UInt64>(RebuildRate().bits)

    /// One that made values of that cost.
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

    /// One that threw.
    func addFailure() { failures.wrappingAdd(1, ordering: .relaxed) }

    func tell(_ statistics: inout CacheStatistics) {
        statistics.loads = loads.load(ordering: .relaxed)
        statistics.loadFailures = failures.load(ordering: .relaxed)
        statistics.loadTime = .nanoseconds(nanoseconds.load(ordering: .relaxed))
    }

    var nanosecondsPerByte: Double? { RebuildRate(bits: rate.load(ordering: .relaxed)).nanosecondsPerByte }
}
