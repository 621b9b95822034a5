import Plimsoll
import PlimsollSupervisor

/// What was seen of the three services. All times are since they were started.
struct TrioRecord {
    struct Sample {
        var at: Duration
        /// Of the whole group.
        var usage: ByteCount
        /// Of each member, in their order.
        var charges: [ByteCount]
    }

    /// How a member came to its end before the play was over.
    struct Ending: Equatable {
        enum Cause: Equatable {
            case supervisor
            /// For want of memory.
            case kernel
            case itself
        }
        var at: Duration
        var cause: Cause
    }

    let limit: ByteCount
    /// On `SteadyClock`.
    let start: Duration
    var isSupervised = true
    var isOver = false
    var length = Duration.zero
    var samples: [Sample] = []
    /// What the supervisor decided and did.
    private(set) var audits: [AuditRecord] = []
    /// By name; who is not in it was there to the end.
    private(set) var endings: [String: Ending] = [:]
    /// Processes that the kernel killed for want of memory.
    var kills = 0
    var isAlive: [String: Bool] = [:]
    /// Orders that were accepted and not saved.
    var lost: [String: Int] = [:]

    init(limit: ByteCount, start: Duration) { (self.limit, self.start) = (limit, start) }

    /// Takes note of a record with its time on the supervisor's clock.
    ///
    /// - Returns: the record with its time since the start.
    @discardableResult
    mutating func take(_ audit: AuditRecord) -> AuditRecord {
        var audit = audit
        audit.at -= start
        audits.append(audit)
        return audit
    }

    /// Takes note that a member is gone, and finds out by whom: the supervisor tells before it ends anybody, the kernel counts.
    @discardableResult
    mutating func takeEnd(of unit: String, at: Duration) -> Ending {
        let isDecided = audits.contains { $0.unit == unit && $0.action.kind == .end }
        let isKilled = kills > endings.values.count { $0.cause == .kernel }
        let ending = Ending(at: at, cause: isDecided ? .supervisor : isKilled ? .kernel : .itself)
        endings[unit] = ending
        return ending
    }
}

// What the bench counts.
extension TrioRecord {
    /// When something was last done to one of them.
    var lastAct: Duration? { audits.last { $0.result != nil && $0.action.kind != .warn && $0.action.kind != .release }?.at }

    /// The one that grows does so no more.
    var isDecided: Bool { wasDone(.end, to: "hog") }

    private func wasDone(_ kind: UnitAction.Kind, to unit: String) -> Bool {
        audits.contains { record in
            guard let result = record.result else { return false }
            return record.unit == unit && record.action.kind == kind && result.failure == nil
        }
    }

    /// The two that did nothing wrong are there, and nobody was touched by the kernel.
    var survived: Bool { kills == 0 && Trio.innocent.allSatisfy { isAlive[$0] == true } }
    var hogWasWarned: Bool { wasDone(.warn, to: "hog") }
    var hogWasStopped: Bool { wasDone(.suspend, to: "hog") || wasDone(.end, to: "hog") }
    var lostOrders: Int { lost.values.reduce(0, +) }

    /// From the first critical decision to the first memory that came back after it.
    var reliefAfterCritical: Duration? {
        guard let first = audits.first(where: { $0.level == .critical })?.at else { return nil }
        return audits.first { $0.at >= first && $0.result?.relief ?? .zero > .zero }.map { $0.at - first }
    }

    var result: String {
        let alive = Trio.members.map(\.name).filter { isAlive[$0] == true }
        let losers = lost.filter { $0.value > 0 }.map { "\($0.key) \($0.value)" }.sorted()
        return "alive: \(alive.isEmpty ? "none" : alive.joined(separator: ", ")); killed by the kernel: \(kills); "
            + "orders lost: \(lostOrders)\(losers.isEmpty ? "" : " (\(losers.joined(separator: ", ")))")"
    }
}
