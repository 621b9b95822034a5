/// The work of one thread while a contender was measured.
struct Lap: Codable {
    var operations = 0.0
    var hits = 0.0
    var times = ThreadTimes(processor: 0, wall: 0, waited: 0)

    /// Time in which the thread ran or was blocked by its own calls: a wait for a lock counts, a wait for a processor
    /// that others used does not.
    var own: Double { max(times.wall - times.waited, 1) }
    /// Share of the time in which others kept the thread from running.
    var disturbance: Double { times.waited / max(times.wall, 1) }
}

/// One measurement of a contender, by one thread or by several at the same time.
struct Heat: Codable {
    var laps: [Lap]

    /// Processor time of an operation, in nanoseconds.
    var processor: Double { sum(\.times.processor) / operations }
    /// Wall time of an operation on a thread.
    var wall: Double { sum(\.times.wall) / operations }
    /// Operations of all threads in a nanosecond of the threads' own time.
    var throughput: Double { laps.reduce(0) { $0 + $1.operations / $1.own } }
    var hitShare: Double { sum(\.hits) / operations }
    /// True if the threads really ran at the same time: none was kept off a processor for more than a tenth of the
    /// time.
    var isUndisturbed: Bool { laps.allSatisfy { $0.disturbance <= 0.1 } }

    private var operations: Double { max(1, sum(\.operations)) }
    private func sum(_ part: KeyPath<Lap, Double>) -> Double { laps.reduce(0) { $0 + $1[keyPath: part] } }
}
