import Plimsoll
import Synchronization

/// Keeps the totals of a page for Prometheus from falling. A total falls when one of several caches or limiters with
/// one name leaves. Prometheus takes a fall for a new start at zero, and would count what is left of the total again.
///
/// A series that ends and begins again, such as that of the only cache with a name, begins with the value of its own.
final class SteadyTotals: Sendable {
    private struct Key: Hashable {
        var name: String
        var labels: [MetricFamily.Label]
    }

    private struct Total {
        /// The last value, as in the status.
        var last: Double
        /// Sum of all falls so far.
        var fallen = 0.0
    }

    private struct State {
        /// Time of the newest status, on the manager's clock.
        var at = -Double.infinity
        var totals: [Key: Total] = [:]

        mutating func hold(_ families: [MetricFamily], at now: Double) -> [MetricFamily] {
            // Of two requests at once, the one with the older status may come last.
            let isNews = now >= at
            var families = families, present: [Key: Total] = [:]
            for index in families.indices where families[index].kind == .counter {
                let name = families[index].name
                families[index].replaceValues { point in
                    let key = Key(name: name, labels: point.labels)
                    var total = totals[key] ?? Total(last: point.value)
                    if isNews {
                        total.fallen += max(0, total.last - point.value)
                        total.last = point.value
                    }
                    present[key] = total
                    return total.last + total.fallen
                }
            }
            if isNews { (at, totals) = (now, present) }
            return families
        }
    }

    private let state = Mutex(State())

    /// Returns the families of `status`. A total that has fallen since the last call stays, and grows from there.
    func families(_ status: ManagerStatus) -> [MetricFamily] {
        let families = MetricCatalogue.families(status)
        return state.withLock { $0.hold(families, at: status.atSeconds) }
    }
}
