/// Contenders that take turns, round by round, so that a disturbance of the machine affects all alike.
struct Race {
    let workload: String
    let contenders: [any Contender]

    /// - Parameters:
    ///   - rounds: number of rounds that count, after one round that warms up.
    ///   - length: length of each heat.
    func run(rounds: Int, length: Duration) throws -> RaceResult {
        var heats: [[Int: [Heat]]] = contenders.map { _ in [:] }
        for round in 0...rounds {
            for threads in 1...Keys.threads {
                for (place, contender) in contenders.enumerated() {
                    let heat = try contender.run(threads: threads, for: length)
                    if round > 0 { heats[place][threads, default: []].append(heat) }
                }
            }
        }
        return RaceResult(
            workload: workload,
            rows: zip(contenders, heats).map { contender, heats in
                RaceResult.Row(name: contender.name, one: heats[1] ?? [], two: heats[2] ?? [])
            })
    }
}

/// The outcome of a race.
struct RaceResult: Codable {
    let workload: String
    let rows: [Row]

    /// One contender, round by round.
    struct Row: Codable {
        let name: String
        let one: [Heat]
        let two: [Heat]

        /// The rounds in which both threads really ran at the same time; all rounds if these are fewer than half.
        var together: [Heat] { Self.most(two, where: \.isUndisturbed) }

        fileprivate static func most<Round>(_ rounds: [Round], where condition: (Round) -> Bool) -> [Round] {
            let some = rounds.filter(condition)
            return 2 * some.count >= rounds.count ? some : rounds
        }
    }

    func row(_ name: String) -> Row? { rows.first { $0.name == name } }

    /// Returns the processor time of `name` over that of `ours` on one thread: the median of the rounds' ratios.
    ///
    /// - Parameter ours: the name of the cache under test with one of its two ways to look up.
    func ratio(of name: String, to ours: String = ourName) -> Double? {
        guard let ours = row(ours), let other = row(name) else { return nil }
        return median(zip(other.one, ours.one).map { $0.processor / $1.processor })
    }
}

extension RaceResult.Row {
    /// Throughput of two threads over that of one: the median of the rounds.
    var scaling: Double? {
        median(
            Self.most(Array(zip(two, one))) { $0.isUndisturbed && $1.isUndisturbed }.map {
                $0.throughput / $1.throughput
            })
    }
}
