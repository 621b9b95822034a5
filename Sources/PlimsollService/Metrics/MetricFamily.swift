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
}
