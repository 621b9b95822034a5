public import Plimsoll

/// Renders a manager's status in Prometheus' text format, version 0.0.4.
public enum PrometheusText {
    /// The `Content-Type` of the text.
    public static let contentType = "text/plain; version=0.0.4; charset=utf-8"

    /// Returns all families of `status`, one after the other. Renders on the caller's thread.
    ///
    /// - Complexity: O(purgeables).
    public static func render(_ status: ManagerStatus) -> String { render(MetricCatalogue.families(status)) }

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
