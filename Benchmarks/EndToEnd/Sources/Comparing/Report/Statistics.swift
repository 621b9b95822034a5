/// Numbers that stand for many.
public enum Statistics {
    /// The value below which a `share` of `sorted` lies, by nearest rank; `nil` of nothing.
    public static func quantile(_ share: Double, of sorted: [Double]) -> Double? {
        guard !sorted.isEmpty else { return nil }
        return sorted[min(sorted.count - 1, max(0, Int((share * Double(sorted.count)).rounded(.up)) - 1))]
    }

    /// The middle value, or the mean of the middle two; `nil` of nothing.
    public static func median(_ values: [Double]) -> Double? {
        let sorted = values.sorted()
        guard !sorted.isEmpty else { return nil }
        return (sorted[(sorted.count - 1) / 2] + sorted[sorted.count / 2]) / 2
    }
}
