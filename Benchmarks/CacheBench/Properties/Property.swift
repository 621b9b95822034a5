/// What else is promised of the cache.
enum Property: String, CaseIterable {
    case specialization, insert, bytes, purge, overLimit = "over-limit", idle

    /// Measures it and tells its figures.
    ///
    /// - Returns: what does not hold of what must, whatever the machine.
    func measure(rounds: Int) throws -> String? {
        switch self {
        case .specialization: return specialization(rounds)
        case .insert: insert(min(rounds, 3))
        case .bytes: try bytes()
        case .purge: try purge(rounds)
        case .overLimit: return try overLimit()
        case .idle: CacheBench.figure("cache.idle.threads", try OwnPart.number(["_idle-threads"]), "count")
        }
        return nil
    }

    private func specialization(_ rounds: Int) -> String? {
        let ratio = Specialization().ratio(rounds: rounds)
        CacheBench.figure("cache.specialized.ratio-to-generic", ratio, "times")
        guard ratio > Specialization.most else { return nil }
        return "a hit takes \(Text.number(ratio, decimals: 2)) times as long as one left generic: it is not specialized in other modules"
    }

    private func insert(_ rounds: Int) {
        for entries in [10_000, 100_000, 1_000_000] {
            let times = InsertOrders(entries: entries).measure(rounds: rounds)
            let text = times.sorted { $0.key.rawValue < $1.key.rawValue }.map { "\($0.key) \(Text.number($0.value))" }
            Output.line("# insert, costs in this order, \(entries) entries fit: \(text.joined(separator: ", ")) ns")
            CacheBench.figure("cache.insert.\(entries)", times.values.max() ?? .nan, "ns")
        }
        let slow = InsertOrders(entries: 5000)
        let foundation = InsertOrders.Order.allCases.map { "\($0) \(Text.number(slow.measureFoundation($0)))" }
        Output.line("# the same of NSCache, 5000 entries fit: \(foundation.joined(separator: ", ")) ns")
    }

    private func bytes() throws {
        let entries = 1_000_000
        let rows = try FootprintCommand.Subject.allCases.map { subject in (subject, try FootprintCommand.measure(subject, entries: entries)) }
        Output.line("# bytes an entry, \(entries) of them: " + rows.map { "\($0.0) \(Text.number($0.1))" }.joined(separator: ", "))
        for case (.purgeableCache, let bytes) in rows { CacheBench.figure("cache.bytes-per-entry", bytes, "bytes") }
    }

    private func purge(_ rounds: Int) throws {
        let (middle, worst) = try PurgeStall.measure(rounds: rounds)
        func number(_ value: Double) -> String { Text.number(value) }
        Output.line(
            "# purge of 1 M objects, worst of \(rounds): caller \(number(worst.caller)) us, others \(number(worst.others)) us; "
                + "others without a purge: \(number(middle.undisturbed)) us, worst \(number(worst.undisturbed)) us")
        Output.line("# alive when the caller went on: \(middle.aliveAtReturn); 300 ms later: \(middle.aliveAtEnd)")
        CacheBench.figure("cache.purge.caller", middle.caller, "us")
        CacheBench.figure("cache.purge.others", middle.others, "us")
    }

    private func overLimit() throws -> String? {
        let result = try OverLimit.measure(for: .seconds(3))
        Output.line("# 4 threads insert, one changes the limit: \(result.looks) looks, \(result.changes) changes")
        CacheBench.figure("cache.over-limit", Double(result.excess), "bytes")
        return result.excess > 0 ? "the sum of costs was \(result.excess) bytes above the limit" : nil
    }
}
