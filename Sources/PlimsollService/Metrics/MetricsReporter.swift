import Metrics  // of the trait "Service"
import Plimsoll
import Synchronization

/// Updates the instruments of swift-metrics from a manager's status. Belongs to one thread; no code that frees memory
/// calls the reporter.
///
/// The reporter creates each instrument with the first value, and destroys a gauge whose value is no longer known. The
/// exporter would show the last value for ever.
struct MetricsReporter {
    private struct Key: Hashable {
        var name: String
        var labels: [MetricFamily.Label]

        var dimensions: [(String, String)] { labels.map { ($0.name, $0.value) } }
        /// True if the series belongs to a registered cache or a limiter.
        var isOfMember: Bool { labels.contains { $0.name == "cache" || $0.name == "limiter" } }
    }

    private let manager: ResourceManager
    private let factory: any MetricsFactory
    private var gauges: [Key: Gauge] = [:]
    /// The counters, each with the total reported so far.
    private var counters: [Key: (counter: FloatingPointCounter, reported: Double)] = [:]

    init(_ manager: ResourceManager, _ factory: any MetricsFactory) {
        (self.manager, self.factory) = (manager, factory)
        // A distribution needs each value as it occurs. All other values are read at each report.
        let durations = Timer(label: "plimsoll_release_duration_seconds", dimensions: [], factory: factory)
        manager.onReport { report in
            guard report.action == .release, report.outcome != .dryRun else { return }
            durations.recordNanoseconds(report.took.inNanoseconds)
        }
    }

    mutating func report() {
        var unknown = Set(gauges.keys), gone = Set(counters.keys)
        for family in MetricCatalogue.families(manager.status) {
            for point in family.points {
                let key = Key(name: family.name, labels: point.labels)
                if family.kind == .gauge {
                    unknown.remove(key)
                    record(key, gauge: point.value)
                } else {
                    gone.remove(key)
                    record(key, count: point.value)
                }
            }
        }
        for key in unknown { gauges.removeValue(forKey: key)?.destroy() }
        // The series of a cache or a limiter ends with the registration. A series that begins again, such as that of a
        // new cache with the name of one before, counts from zero. The exporter keeps the total. A total of the kernel
        // that cannot be read for a while goes on.
        for key in gone where key.isOfMember { counters[key] = nil }
    }

    private mutating func record(_ key: Key, gauge value: Double) {
        let gauge = gauges[key] ?? Gauge(label: key.name, dimensions: key.dimensions, factory: factory)
        gauges[key] = gauge
        gauge.record(value)
    }

    private mutating func record(_ key: Key, count value: Double) {
        var entry =
            counters[key] ?? (FloatingPointCounter(label: key.name, dimensions: key.dimensions, factory: factory), 0)
        // A total falls when one of two caches with the same name leaves, and grows from there.
        entry.reported = min(entry.reported, value)
        if value > entry.reported {
            entry.counter.increment(by: value - entry.reported)
            entry.reported = value
        }
        counters[key] = entry
    }
}
