import Plimsoll
import PlimsollSupervisor

/// What was seen of the three services.
struct TrioRecord {
    struct Sample {
        var at: Duration
        /// Of the whole group.
        var usage: ByteCount
        /// Of each member, in their order.
        var charges: [ByteCount]
    }

    let limit: ByteCount
    let start: Duration
    var isSupervised = true
    var isOver = false
    var length = Duration.zero
    var samples: [Sample] = []
    /// What the supervisor decided and did; times since the start.
    private(set) var audits: [AuditRecord] = []
    /// Processes that the kernel killed for want of memory.
    var kills = 0
    var isAlive: [String: Bool] = [:]
    /// Orders that were accepted and not saved.
    var lost: [String: Int] = [:]

    init(limit: ByteCount, start: Duration) { (self.limit, self.start) = (limit, start) }

    mutating func take(_ audit: AuditRecord) {
        var audit = audit
        audit.at -= start
        audits.append(audit)
    }

    /// When something was last done to one of them.
    var lastAct: Duration? { audits.last { $0.result != nil && $0.action.kind != .warn && $0.action.kind != .release }?.at }

    /// The one that grows does so no more.
    var isDecided: Bool { audits.contains { $0.unit == "hog" && $0.action.kind == .end && $0.result?.failure == nil && $0.result != nil } }

    private func happened(_ kind: UnitAction.Kind, to unit: String) -> AuditRecord? {
        audits.first { $0.unit == unit && $0.action.kind == kind && $0.result != nil && $0.result?.failure == nil }
    }

    /// The two that did nothing wrong are there, and nobody was touched by the kernel.
    var survived: Bool { kills == 0 && isAlive["important"] == true && isAlive["bystander"] == true }
    var hogWasWarned: Bool { happened(.warn, to: "hog") != nil }
    var hogWasStopped: Bool { happened(.suspend, to: "hog") != nil || happened(.end, to: "hog") != nil }
    var lostOrders: Int { lost.values.reduce(0, +) }

    /// From the first decision made at a level to the first memory that came back.
    var firstRelief: Duration? {
        guard let first = audits.first(where: { $0.level > .normal })?.at else { return nil }
        return audits.first { $0.result?.relief ?? .zero > .zero }.map { $0.at - first }
    }

    /// From a critical decision to the first relief by it.
    var reliefAfterCritical: Duration? {
        guard let first = audits.first(where: { $0.level == .critical })?.at else { return nil }
        return audits.first { $0.at >= first && $0.result?.relief ?? .zero > .zero }.map { $0.at - first }
    }

    var result: String {
        let alive = Trio.members.map(\.name).filter { isAlive[$0] == true }
        return
            "alive: \(alive.isEmpty ? "none" : alive.joined(separator: ", ")); killed by the kernel: \(kills); orders lost: \(lostOrders)\(lostOrders > 0 ? " (\(lost.filter { $0.value > 0 }.map { "\($0.key) \($0.value)" }.sorted().joined(separator: ", ")))" : "")"
    }
}
