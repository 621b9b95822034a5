public import Plimsoll

/// All measurements of one metric name.
struct MetricFamily: Sendable, Equatable {
    enum Kind: String, Sendable {
        /// A value that rises and falls.
        case gauge
        /// A value that only grows.
        case counter
        /// Counts by value range.
        case histogram
    }

    struct Point: Sendable, Equatable {
        var labels: [Label]
        var value: Double
    }

    struct Label: Sendable, Hashable {
        var name: String
        var value: String
    }

    struct Distribution: Sendable, Equatable {
        /// Cumulative counts: for each bound, in rising order, the number of values no greater than the bound.
        /// `count` is the total.
        var atMost: [(bound: Double, count: Int)]
        var count: Int
        var sum: Double

        static func == (left: Self, right: Self) -> Bool {
            left.count == right.count && left.sum == right.sum && left.atMost.elementsEqual(right.atMost) { $0 == $1 }
        }
    }

    let name: String
    let kind: Kind
    let help: String
    private(set) var points: [Point] = []
    private var places: [[Label]: Int] = [:]
    var distribution: Distribution?

    init(_ name: String, _ kind: Kind, _ help: String) { (self.name, self.kind, self.help) = (name, kind, help) }

    /// Adds a point. Points with equal labels are summed, for example of two caches with one name.
    mutating func add(_ value: Double, _ labels: KeyValuePairs<String, String> = [:]) {
        let labels = labels.map { Label(name: $0.key, value: $0.value) }
        if let same = places.updateValue(points.count, forKey: labels) {
            places[labels] = same
            points[same].value += value
        } else {
            points.append(Point(labels: labels, value: value))
        }
    }

    mutating func add(_ value: Int, _ labels: KeyValuePairs<String, String> = [:]) { add(Double(value), labels) }

    /// Replaces the value of each point.
    mutating func replaceValues(_ value: (Point) -> Double) {
        for index in points.indices { points[index].value = value(points[index]) }
    }
}

extension ManagerStatus {
    /// The status in Prometheus' text format, version 0.0.4, to send as `text/plain; version=0.0.4; charset=utf-8`.
    ///
    /// A total by name falls when one of several caches or limiters with that name leaves. The page of `AdminPages`
    /// keeps its totals from falling.
    ///
    /// - Complexity: O(purgeables).
    public var prometheusText: String { PrometheusText.render(self) }
}

/// Renders a manager's status in Prometheus' text format, version 0.0.4.
package enum PrometheusText {
    package static let contentType = "text/plain; version=0.0.4; charset=utf-8"

    /// Returns all families of `status`, one after the other. Renders on the caller's thread.
    ///
    /// - Complexity: O(purgeables).
    package static func render(_ status: ManagerStatus) -> String { render(MetricCatalogue.families(status)) }

    static func render(_ families: [MetricFamily]) -> String {
        var text = ""
        text.reserveCapacity(16384)
        for family in families where !family.points.isEmpty || family.distribution != nil {
            text +=
                "# HELP \(family.name) \(escaped(family.help, quotes: false))\n# TYPE \(family.name) \(family.kind.rawValue)\n"
            for point in family.points { text += "\(family.name)\(labels(point.labels)) \(number(point.value))\n" }
            guard let distribution = family.distribution else { continue }
            for (bound, count) in distribution.atMost {
                text += "\(family.name)_bucket{le=\"\(number(bound))\"} \(count)\n"
            }
            text += "\(family.name)_bucket{le=\"+Inf\"} \(distribution.count)\n"
            text += "\(family.name)_sum \(number(distribution.sum))\n\(family.name)_count \(distribution.count)\n"
        }
        return text
    }

    private static func labels(_ labels: [MetricFamily.Label]) -> String {
        labels.isEmpty
            ? "" : "{" + labels.map { "\($0.name)=\"\(escaped($0.value, quotes: true))\"" }.joined(separator: ",") + "}"
    }

    /// Returns a number as text. Whole numbers have no decimal point: byte counts stay exact up to 2^53.
    static func number(_ value: Double) -> String {
        if value.isNaN { return "NaN" }
        if value.isInfinite { return value < 0 ? "-Inf" : "+Inf" }
        if let whole = Int(exactly: value) { return "\(whole)" }
        return "\(value)"
    }

    private static func escaped(_ text: String, quotes: Bool) -> String {
        var escaped = ""
        for character in text.unicodeScalars {
            switch character {
            case "\\": escaped += "\\\\"
            case "\n": escaped += "\\n"
            case "\"" where quotes: escaped += "\\\""
            default: escaped.unicodeScalars.append(character)
            }
        }
        return escaped
    }
}
