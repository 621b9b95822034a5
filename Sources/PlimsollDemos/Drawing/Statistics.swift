/// Returns the median of `values`: the mean of the two middle values if the count is even; `nil` for none.
package func median(_ values: [Double]) -> Double? {
    let sorted = values.sorted()
    guard !sorted.isEmpty else { return nil }
    let middle = sorted.count / 2
    return sorted.count % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
}

/// Returns the value below which `share` of `values` lie (nearest rank); `nil` for none.
package func quantile(_ share: Double, of values: [Double]) -> Double? {
    let sorted = values.sorted()
    guard !sorted.isEmpty else { return nil }
    let rank = Int((min(1, max(0, share)) * Double(sorted.count)).rounded(.up))
    return sorted[max(0, rank - 1)]
}
