/// All that is measured under one name.
struct MetricFamily: Sendable, Equatable {
    enum Kind: String, Sendable {
        /// Goes up and down.
        case gauge
        /// Only grows.
        case counter
        /// Counts by size.
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
        /// How many were no greater than each bound, which rise; then how many there were.
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

    /// Adds a point. Two of the same labels, as of two caches of one name, are one: their sum.
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
}
