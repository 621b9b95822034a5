/// The runs of all variants under one limit and one load.
struct Cell {
    let limitBytes: Int
    let load: String
    /// Runs by variant.
    let runs: [String: [RunRecord]]

    /// Sorts runs into cells, in the order in which limits and loads occur.
    static func cells(_ records: [RunRecord]) -> [Cell] {
        var order: [String] = [], groups: [String: [RunRecord]] = [:]
        for record in records {
            let key = "\(record.limitBytes) \(record.load)"
            if groups[key] == nil { order.append(key) }
            groups[key, default: []].append(record)
        }
        return order.map { key in
            let records = groups[key]!
            return Cell(
                limitBytes: records[0].limitBytes, load: records[0].load,
                runs: Dictionary(grouping: records) { $0.variant })
        }
    }

    /// Returns true for a variant whose bound was chosen by hand, without a manager.
    static func isTuned(_ variant: String) -> Bool {
        ["fixed-", "nscache-", "jemalloc-"].contains { variant.hasPrefix($0) }
    }

    /// Returns the median of good answers a second. A run in which the server died counts the requests served before.
    func goodput(_ variant: String) -> Double? { median(variant) { $0.goodPerSecond } }

    /// The tuned variant with the best median among those that lived through every run here.
    ///
    /// - Parameter allowed: the variants to choose from; `nil` for all.
    func bestTuned(among allowed: Set<String>? = nil) -> String? {
        runs.keys.filter { Self.isTuned($0) && !isKilled($0) && allowed?.contains($0) != false }.sorted().max {
            goodput($0)! < goodput($1)!
        }
    }

    /// Returns true if a run of `variant` ended in a kill.
    func isKilled(_ variant: String) -> Bool { (runs[variant] ?? []).contains { $0.wasKilled } }

    /// The median over the runs of `variant` that have the value.
    func median(_ variant: String, _ value: (RunRecord) -> Double?) -> Double? {
        Statistics.median((runs[variant] ?? []).compactMap(value))
    }

    /// The smallest over the runs of `variant`.
    func worst(_ variant: String, _ value: (RunRecord) -> Double?) -> Double? {
        (runs[variant] ?? []).compactMap(value).min()
    }

    /// The sum over all runs of `variant` and over `routes`.
    func sum(_ variant: String, _ routes: [Route], _ value: (RouteResult) -> Int) -> Int {
        let results = (runs[variant] ?? []).compactMap(\.result)
        return results.flatMap { result in routes.map { value(result[$0]) } }.reduce(0, +)
    }
}
