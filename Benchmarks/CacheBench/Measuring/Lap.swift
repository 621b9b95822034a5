/// What one thread did while a contender was measured.
struct Lap: Codable {
    var operations = 0.0
    var hits = 0.0
    var times = ThreadTimes(processor: 0, wall: 0, waited: 0)

    /// Time that it ran or was blocked of its own accord: waiting for a lock counts, waiting for a processor that others used does not.
    var own: Double { max(times.wall - times.waited, 1) }
    /// Share of its time in which others kept it from running.
    var disturbance: Double { times.waited / max(times.wall, 1) }
}

/// A contender measured once, by one thread or by several at the same time.
struct Heat: Codable {
    var laps: [Lap]

    /// Processor time an operation took, in nanoseconds.
    var processor: Double { sum(\.times.processor) / operations }
    /// Time on the wall an operation took a thread.
    var wall: Double { sum(\.times.wall) / operations }
    /// Operations of all threads in a nanosecond of their own time.
    var throughput: Double { laps.reduce(0) { $0 + $1.operations / $1.own } }
    var hitShare: Double { sum(\.hits) / operations }
    /// Whether its threads really ran at the same time: none was kept off a processor for more than a tenth of it.
    var isUndisturbed: Bool { laps.allSatisfy { $0.disturbance <= 0.1 } }

    private var operations: Double { max(1, sum(\.operations)) }
    private func sum(_ part: KeyPath<Lap, Double>) -> Double { laps.reduce(0) { $0 + $1[keyPath: part] } }
}
