import Plimsoll
package import PlimsollSupervisor

/// Observations of the three services. All times are since their start.
package struct TrioRecord {
    struct Sample {
        var at: Duration
        /// Memory of the whole group.
        var usage: ByteCount
        /// Memory of each member, in their order.
        var charges: [ByteCount]
    }

    /// The end of a member before the play was over.
    struct Ending: Equatable {
        enum Cause: Equatable {
            case supervisor
            /// Killed because memory ran out.
            case kernel
            case itself
        }
        var at: Duration
        var cause: Cause
    }

    let limit: ByteCount
    /// Start of the play on `SteadyClock`.
    let start: Duration
    var isSupervised = true
    package var isOver = false
    var length = Duration.zero
    var samples: [Sample] = []
    /// Decisions and actions of the supervisor.
    package private(set) var audits: [AuditRecord] = []
    /// Endings by name; a member without an entry lived to the end.
    private(set) var endings: [String: Ending] = [:]
    /// Number of processes that the kernel OOM-killed.
    var kills = 0
    var isAlive: [String: Bool] = [:]
    /// Orders accepted and not saved, by member.
    var lost: [String: Int] = [:]

    init(limit: ByteCount, start: Duration) { (self.limit, self.start) = (limit, start) }

    /// Adds a record that carries the supervisor's time.
    ///
    /// - Returns: the record, with time since the start.
    @discardableResult
    mutating func take(_ audit: AuditRecord) -> AuditRecord {
        var audit = audit
        audit.at -= start
        audits.append(audit)
        return audit
    }

    /// Records that a member is gone, with the cause. The supervisor announces each end beforehand; the kernel counts
    /// kills.
    @discardableResult
    mutating func takeEnd(of unit: String, at: Duration) -> Ending {
        let isDecided = audits.contains { $0.unit == unit && $0.action.kind == .end }
        let isKilled = kills > endings.values.count { $0.cause == .kernel }
        let ending = Ending(at: at, cause: isDecided ? .supervisor : isKilled ? .kernel : .itself)
        endings[unit] = ending
        return ending
    }
}

// Counts for the benchmark.
extension TrioRecord {
    /// Time of the last action on a member.
    var lastAct: Duration? {
        audits.last { $0.result != nil && $0.action.kind != .warn && $0.action.kind != .release }?.at
    }

    /// True if the hog has been ended.
    var isDecided: Bool { wasDone(.end, to: "hog") }

    /// Returns true if an action of that kind on a unit had no failure.
    package func wasDone(_ kind: UnitAction.Kind, to unit: String) -> Bool {
        audits.contains { record in
            guard let result = record.result else { return false }
            return record.unit == unit && record.action.kind == kind && result.failure == nil
        }
    }

    /// True if both innocent members are alive and the kernel killed no process.
    package var survived: Bool { kills == 0 && Trio.innocent.allSatisfy { isAlive[$0] == true } }
    package var lostOrders: Int { lost.values.reduce(0, +) }

    package var result: String {
        let alive = Trio.members.map(\.name).filter { isAlive[$0] == true }
        let losers = lost.filter { $0.value > 0 }.map { "\($0.key) \($0.value)" }.sorted()
        return "alive: \(alive.isEmpty ? "none" : alive.joined(separator: ", ")); killed by the kernel: \(kills); "
            + "orders lost: \(lostOrders)\(losers.isEmpty ? "" : " (\(losers.joined(separator: ", ")))")"
    }
}

/// A mark in the chart.
struct TrioMark: Equatable {
    var at: Duration
    var text: String
    /// True if the kernel killed a member.
    var isKill = false

    /// Returns marks for each action on a member, once each, and for each kill by the kernel. Actions on several
    /// members at once share one mark.
    static func all(of record: TrioRecord) -> [TrioMark] {
        var deeds: [(at: Duration, units: [String], what: String)] = []
        for audit in record.audits {
            guard let what = text(audit), !deeds.contains(where: { $0.what == what && $0.units.contains(audit.unit) })
            else { continue }
            if let last = deeds.lastIndex(where: { $0.what == what && audit.at - $0.at < together }) {
                deeds[last].units.append(audit.unit)
            } else {
                deeds.append((audit.at, [audit.unit], what))
            }
        }
        let kills = Trio.members.compactMap { member in
            record.endings[member.name].flatMap {
                $0.cause == .kernel ? TrioMark(at: $0.at, text: "the kernel kills \(member.name)", isKill: true) : nil
            }
        }
        return (deeds.map { TrioMark(at: $0.at, text: "\($0.units.joined(separator: ", ")) \($0.what)") } + kills)
            .sorted { $0.at < $1.at }
    }

    private static let together = Duration.milliseconds(200)

    /// Returns the text of a mark; `nil` for records without a mark. Messages are marked when sent, actions when
    /// done.
    private static func text(_ audit: AuditRecord) -> String? {
        guard !audit.isDryRun, audit.result?.failure == nil else { return nil }
        switch (audit.action, audit.result) {
        case (.warn(let level), nil) where level > .normal: return "notified: \(level)"
        case (.background, nil): return "to the background"
        case (.suspend, .some): return "suspended"
        case (.resume, .some): return "resumed"
        case (.start, .some): return "started again"
        case (.end, .some(let result)):
            return "ended" + (result.relief > .zero ? ", \(Text.mebibytes(result.relief)) MiB freed" : "")
        default: return nil
        }
    }
}
