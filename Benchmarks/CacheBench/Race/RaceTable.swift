/// All races as a readable table.
struct RaceTable {
    private let raceResults: [RaceResult]

    init(_ raceResults: [RaceResult]) { self.raceResults = raceResults }

    var text: String {
        let header = [
            "workload", "contender", "ns", "wall", "hit %", "M/s", "2 threads: ns", "wall", "M/s", "from", "to",
            "together",
        ]
        let rows = RaceRecord.all(raceResults).map { row in
            [
                row.workload, row.contender, Self.number(row.processor), Self.number(row.wall),
                Text.fixed(row.hitShare * 100, decimals: 1),
            ]
                + [
                    Self.number(row.throughput), Self.number(row.processor2), Self.number(row.wall2),
                    Self.number(row.throughput2),
                ]
                + [Self.number(row.lowest2), Self.number(row.highest2), "\(row.together) of \(row.rounds)"]
        }
        return """
            # ns: processor time an operation took a thread; wall: as the clock has it; M/s: million operations a second of all threads' own time
            # together: rounds in which both threads really ran at the same time; those count, if they are half of them; from, to: worst and best
            \(Text.table(header, rows, numeric: true))
            """
    }

    private static func number(_ value: Double) -> String { Text.fixed(value, decimals: value < 100 ? 1 : 0) }
}

/// One contender in one race, in medians: a row of the table, and of the charts.
struct RaceRecord: Codable {
    var workload: String
    var contender: String
    var hitShare: Double
    /// Nanoseconds of an operation, on one thread and on each of two.
    var processor, wall, processor2, wall2: Double
    /// Million operations a second.
    var throughput, throughput2, lowest2, highest2: Double
    var rounds: Int
    /// Rounds in which both threads ran at the same time.
    var together: Int

    private init(_ workload: String, _ row: RaceResult.Row) {
        func middle(_ heats: [Heat], _ part: (Heat) -> Double) -> Double { median(heats.map(part)) ?? .nan }
        self.workload = workload
        contender = row.name
        hitShare = middle(row.one) { $0.hitShare }
        processor = middle(row.one) { $0.processor }
        wall = middle(row.one) { $0.wall }
        processor2 = middle(row.together) { $0.processor }
        wall2 = middle(row.together) { $0.wall }
        throughput = middle(row.one) { $0.throughput * 1000 }
        throughput2 = middle(row.together) { $0.throughput * 1000 }
        lowest2 = row.together.map { $0.throughput * 1000 }.min() ?? .nan
        highest2 = row.together.map { $0.throughput * 1000 }.max() ?? .nan
        rounds = row.two.count
        together = row.two.count { $0.isUndisturbed }
    }

    static func all(_ raceResults: [RaceResult]) -> [RaceRecord] {
        raceResults.flatMap { race in race.rows.map { RaceRecord(race.workload, $0) } }
    }
}

/// The promised figures of the races.
struct RaceFigures {
    private let raceResults: [String: RaceResult]

    init(_ raceResults: [RaceResult]) {
        self.raceResults = Dictionary(raceResults.map { ($0.workload, $0) }, uniquingKeysWith: { $1 })
    }

    func report() {
        report("cache.hit.ratio-to-dictionary", raceResults["hits"]?.ratio(of: "Dictionary").map { 1 / $0 })
        report("cache.hit.scaling-2t", raceResults["hits"]?.row(ourName)?.scaling)
        report("cache.get-or-insert.nscache-ratio", raceResults["get-or-insert"]?.ratio(of: "NSCache"))
        report("cache.get-or-insert.caffeine-ratio", raceResults["get-or-insert"]?.ratio(of: "Caffeine"))
        reportObjects("cache.hit-object", "-10000")
        reportObjects("cache.hit-object-100k", "")
    }

    /// Reports the worse of both kinds of counted references: handed out, as by `value(forKey:)`, with one increment
    /// and one decrement of the count, and lent, as by `withValue(forKey:)`.
    private func reportObjects(_ name: String, _ size: String) {
        let races = ["objects", "string-values"].compactMap { raceResults[$0 + size] }
        guard races.count == 2 else { return }
        report(name + ".nscache-ratio", races.compactMap { $0.ratio(of: "NSCache") }.min())
        report(
            name + ".ratio-to-dictionary",
            races.compactMap { $0.ratio(of: "Dictionary, handing out").map { 1 / $0 } }.max())
        report(name + "-lent.nscache-ratio", races.compactMap { $0.ratio(of: "NSCache", to: ourLendingName) }.min())
        report(
            name + "-lent.ratio-to-dictionary",
            races.compactMap { $0.ratio(of: "Dictionary", to: ourLendingName).map { 1 / $0 } }.max())
    }

    private func report(_ name: String, _ value: Double?) { if let value { CacheBench.figure(name, value, "times") } }
}
