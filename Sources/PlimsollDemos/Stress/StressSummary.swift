import Plimsoll
import PlimsollLifecycle

/// Totals of the runs of one scenario under one protection.
struct StressSummary {
    var scenario: Scenario
    var protection: Protection
    var runs = 0
    var survivors: [SubjectResult] = []
    var invalid: [String] = []
    var skipped: String?

    mutating func add(_ outcome: StressRun.Outcome) {
        runs += 1
        switch outcome {
        case .survived(let result): survivors.append(result)
        case .killed: break
        case .invalid(let reason): invalid.append(reason)
        }
    }

    /// Median over the survivors, in milliseconds.
    var notice: Double? { median(survivors.compactMap(\.noticeMicroseconds).map { Double($0) / 1000 }) }
    var release: Double? { median(survivors.compactMap(\.releaseMicroseconds).map { Double($0) / 1000 }) }
    /// Median over all passes of the survivors.
    var purge: Double? { median(survivors.flatMap(\.purgeMicroseconds).map { Double($0) / 1000 }) }
    /// Share of the entries that the cache still had, over all survivors.
    var kept: Double? {
        let kept = survivors.reduce(0) { $0 + $1.keptEntries }, lost = survivors.reduce(0) { $0 + $1.lostEntries }
        return kept + lost == 0 ? nil : Double(kept) / Double(kept + lost) * 100
    }
    /// Median of the memory returned in a run, in MiB.
    var returned: Double? { survivors.isEmpty ? nil : median(survivors.map { Double($0.returnedBytes) / 1_048_576 }) }

    /// Lines of `figure NAME VALUE UNIT`. Times exist only for runs with a manager.
    var figures: [String] {
        guard skipped == nil else { return [] }
        var figures = ["figure survival.\(scenario.rawValue).\(protection.rawValue) \(survivors.count)/\(runs) count"]
        let more: [(String, Double?, String)] =
            switch protection {
            case .none: []
            case .reactive:
                [
                    ("notice", notice, "ms"), ("release", release, "ms"), ("purge", purge, "ms"),
                    ("returned", returned, "MiB"),
                ]
            case .volatile: [("taken", returned, "MiB"), ("kept", kept, "%")]
            }
        for case (let name, let value?, let unit) in more {
            figures.append("figure \(name).\(scenario.rawValue) \(Text.number(value, decimals: 2)) \(unit)")
        }
        return figures
    }

    static let header = [
        "scenario", "protection", "survived", "notice ms", "release ms", "purge ms", "returned MiB", "kept %",
    ]

    var row: [String] {
        if let skipped { return [scenario.rawValue, protection.rawValue, "skipped: \(skipped)"] }
        let numbers = protection == .none ? [nil, nil, nil, nil, nil] : [notice, release, purge, returned, kept]
        return [scenario.rawValue, protection.rawValue, "\(survivors.count) of \(runs)"]
            + numbers.map { $0.map { Text.number($0) } ?? "-" }
    }

    var record: Record {
        Record(
            scenario: scenario.rawValue, protection: protection.rawValue, runs: runs, survived: survivors.count,
            invalid: invalid,
            skipped: skipped, noticeMilliseconds: notice, releaseMilliseconds: release, purgeMilliseconds: purge,
            returnedMebibytes: returned,
            keptPercent: kept)
    }

    struct Record: Encodable {
        var scenario: String, protection: String, runs: Int, survived: Int, invalid: [String], skipped: String?
        var noticeMilliseconds: Double?, releaseMilliseconds: Double?, purgeMilliseconds: Double?,
            returnedMebibytes: Double?, keptPercent: Double?
    }
}
