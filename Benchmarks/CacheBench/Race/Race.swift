/// Contenders that take turns, round by round: a change of the machine's mood meets all alike.
struct Race {
    let workload: String
    let contenders: [any Contender]

    /// - Parameters:
    ///   - rounds: those that count; one before them warms up.
    ///   - length: of each heat.
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

/// How a race went.
struct RaceResult: Codable {
    let workload: String
    let rows: [Row]

    /// One contender, round by round.
    struct Row: Codable {
        let name: String
        let one: [Heat]
        let two: [Heat]

        /// The rounds in which both threads really ran at the same time; all of them if most were not so.
        var together: [Heat] { Self.most(two, where: \.isUndisturbed) }

        fileprivate static func most<Round>(_ rounds: [Round], where condition: (Round) -> Bool) -> [Round] {
            let some = rounds.filter(condition)
            return 2 * some.count >= rounds.count ? some : rounds
        }
    }

    func row(_ name: String) -> Row? { rows.first { $0.name == name } }

    /// Processor time of `name` over that of ours, one thread: the middle of the rounds' ratios.
    ///
    /// - Parameter ours: which of our ways of looking up.
    func ratio(of name: String, to ours: String = ourName) -> Double? {
        guard let ours = row(ours), let other = row(name) else { return nil }
        return median(zip(other.one, ours.one).map { $0.processor / $1.processor })
    }
}

extension RaceResult.Row {
    /// Throughput of two threads over that of one: the middle of the rounds.
    var scaling: Double? {
        median(
            Self.most(Array(zip(two, one))) { $0.isUndisturbed && $1.isUndisturbed }.map {
                $0.throughput / $1.throughput
            })
    }
}
