/// Promised properties of the cache other than its speed in races.
enum Property: String, CaseIterable {
    case specialization, insert, bytes, purge, overLimit = "over-limit", idle

    struct Outcome {
        /// The broken promise, among those that hold on any machine; `nil` for none.
        var failure: String?
        /// The panel of the property in a chart.
        var panel: BarPanels.Panel?
    }

    /// Measures the property and prints the figures.
    func measure(rounds: Int) throws -> Outcome {
        switch self {
        case .specialization: Outcome(failure: specialization(rounds))
        case .insert: Outcome(panel: insert(min(rounds, 3)))
        case .bytes: Outcome(panel: try bytes())
        case .purge: Outcome(panel: try purge(rounds))
        case .overLimit: Outcome(failure: try overLimit())
        case .idle: try idle()
        }
    }

    private func specialization(_ rounds: Int) -> String? {
        let ratio = Specialization().ratio(rounds: rounds)
        CacheBench.figure("cache.specialized.ratio-to-generic", ratio, "times")
        guard ratio > Specialization.most else { return nil }
        return
            "a hit takes \(Text.number(ratio, decimals: 2)) times as long as one left generic: it is not specialized in other modules"
    }

    private func insert(_ rounds: Int) -> BarPanels.Panel {
        var panel = BarPanels.Panel(title: "an insert, by number and order of costs", rows: [])
        func report(_ name: String, _ entries: Int, _ times: [InsertOrders.Order: Double]) {
            let times = InsertOrders.Order.allCases.map { ($0.rawValue, times[$0] ?? .nan) }
            let text = times.map { "\($0.0) \(Text.number($0.1))" }.joined(separator: ", ")
            Output.line("# insert, costs in this order, \(entries) entries fit, \(name): \(text) ns")
            let prefix = (name == ourName ? "" : name + ", ") + "\(entries / 1000) k, "
            panel.rows += times.map { .init(name: prefix + $0.0, value: $0.1, unit: "ns", isOurs: name == ourName) }
        }
        for entries in [10_000, 100_000, 1_000_000] {
            let times = InsertOrders(entries: entries).measure(rounds: rounds)
            report(ourName, entries, times)
            CacheBench.figure("cache.insert.\(entries)", times.values.max() ?? .nan, "ns")
        }
        // Few entries: NSCache's time grows with the number of entries.
        let few = InsertOrders(entries: 5000)
        report(
            "NSCache", few.entries,
            Dictionary(uniqueKeysWithValues: InsertOrders.Order.allCases.map { ($0, few.measureFoundation($0)) }))
        return panel
    }

    private func bytes() throws -> BarPanels.Panel {
        let entries = 1_000_000
        let rows = try FootprintCommand.Subject.allCases.map { subject in
            (subject, try FootprintCommand.measure(subject, entries: entries))
        }
        Output.line(
            "# bytes an entry, \(entries) of them: "
                + rows.map { "\($0.0.title) \(Text.number($0.1))" }.joined(separator: ", "))
        for case (.purgeableCache, let bytes) in rows { CacheBench.figure("cache.bytes-per-entry", bytes, "bytes") }
        return .init(
            title: "resident memory of an entry",
            rows: rows.map { .init(name: $0.0.title, value: $0.1, unit: "B", isOurs: $0.0 == .purgeableCache) })
    }

    private func purge(_ rounds: Int) throws -> BarPanels.Panel {
        let (middle, worst) = try PurgeStall.measure(rounds: rounds), foundation = PurgeStall.measureFoundation()
        func number(_ value: Double) -> String { Text.number(value) }
        Output.line(
            "# purge of 1 M objects, worst of \(rounds): caller \(number(worst.caller)) us, others \(number(worst.longest)) us"
        )
        Output.line("# others without a purge: \(number(middle.undisturbed)) us, worst \(number(worst.undisturbed)) us")
        Output.line("# NSCache's caller: \(number(foundation)) us")
        Output.line(
            "# alive when the caller went on: \(Int(middle.aliveAtReturn)); 300 ms later: \(Int(middle.aliveAtEnd))")
        CacheBench.figure("cache.purge.caller", middle.caller, "us")
        CacheBench.figure("cache.purge.others", middle.others, "us")
        CacheBench.figure("cache.purge.others-longest", middle.longest, "us")
        CacheBench.figure("cache.purge.others-without", middle.undisturbed, "us")
        return .init(
            title: "purge of a million objects",
            rows: [
                .init(name: "caller", value: middle.caller, unit: "us", isOurs: true),
                .init(name: "other threads", value: middle.others, unit: "us", isOurs: true),
                .init(name: "without a purge", value: middle.undisturbed, unit: "us", isOurs: true),
                .init(name: "NSCache, caller", value: foundation, unit: "us", isOurs: false),
            ])
    }

    private func overLimit() throws -> String? {
        let result = try OverLimit.measure(for: .seconds(3))
        Output.line("# 4 threads insert, one changes the limit: \(result.checks) checks, \(result.changes) changes")
        CacheBench.figure("cache.over-limit", Double(result.afterInsert), "bytes")
        CacheBench.figure("cache.over-limit.after-change", Double(result.afterChange), "bytes")
        let excess = max(result.afterInsert, result.afterChange)
        return excess > 0 ? "the sum of costs was \(excess) bytes above the limit" : nil
    }

    private func idle() throws -> Outcome {
        CacheBench.figure("cache.idle.threads", try OwnPart.number(["_idle-threads"]), "count")
        return Outcome()
    }
}
