/// The memory that caches need, by the load time that is lost with less.
package enum Sizing {
    /// Sizes that are tried.
    static let steps = 256

    /// Returns the fewest bytes with which the caches, divided in the best way, lose at most `loss` of the load time
    /// that memory can save.
    ///
    /// Memory can save the load time of all requests less that of the misses at the largest sizes of the curves.
    ///
    /// - Parameters:
    ///   - caches: caches with their curves. A cache without a reliable curve needs nothing.
    ///   - loss: a part in `0...1`; what is less than a thousandth counts as nothing.
    /// - Returns: the bytes, at most the sum of the largest sizes; zero without curves.
    /// - Complexity: some 200,000 steps for each cache.
    package static func leastBytes(_ caches: [Division.Holder], losing loss: Double) -> Int {
        let known = caches.filter { $0.known != nil }
        let largest = known.reduce(0) { $0 + min($1.known?.points.last?.bytes ?? 0, Division.mostBytes) }
        guard largest > 0 else { return 0 }
        func cost(_ bytes: Int) -> Double {
            guard known.count > 1, bytes >= Division.units else {
                return known.reduce(0) { $0 + $1.cost(at: bytes) }
            }
            return zip(known, Division.best(known, budget: bytes)).reduce(0) { $0 + $1.0.cost(at: $1.1) }
        }
        let least = cost(largest), avoidable = known.reduce(0) { $0 + $1.cost(at: 0) } - least
        let allowed = least + max(max(0, loss), 0.001) * avoidable
        // The cost does not rise with the size, but for the rounding to units of the best division.
        var low = 0, high = steps
        while low < high {
            let middle = (low + high) / 2
            if cost(largest / steps * middle) <= allowed { high = middle } else { low = middle + 1 }
        }
        return high == steps ? largest : largest / steps * high
    }

    /// Returns the least limit under which `needed` bytes are below the warning line.
    package static func limit(needed: ByteCount, _ thresholds: PressureThresholds = .standard) -> ByteCount {
        let margin = thresholds.warningMargin, bytes = Double(max(0, needed.bytes))
        let byShare = bytes / (1 - min(0.99, max(0, margin.share)))
        return ByteCount(Int(min(byShare, bytes + Double(margin.atMost.bytes), 1e18).rounded(.up)))
    }
}
