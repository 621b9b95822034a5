import Plimsoll
import PlimsollSupervisor

// What the demo says of both plays.
extension TrioRecord {
    /// Those that the kernel killed although they did nothing wrong, in the members' order.
    var victims: [String] { Trio.innocent.filter { endings[$0]?.cause == .kernel } }

    /// How they fared, in few words: who survived or was killed, and what was lost.
    var outcome: String {
        let ends = Trio.members.compactMap { member in endings[member.name].map { "\(member.name) \(Self.text($0))" } }
        let there = Trio.innocent.filter { isAlive[$0] == true }
        let survivors = there.count == Trio.innocent.count ? "\(there.joined(separator: " and ")) survived" : nil
        let loss = "\(lostOrders == 0 ? "no" : "\(lostOrders)") order\(lostOrders == 1 ? "" : "s") lost"
        return ([survivors].compactMap { $0 } + ends + [loss]).joined(separator: ", ")
    }

    private static func text(_ ending: Ending) -> String {
        switch ending.cause {
        case .kernel: "killed by the kernel after \(Text.number(ending.at.inSeconds)) s"
        case .supervisor: "ended by the supervisor after \(Text.number(ending.at.inSeconds)) s"
        case .itself: "ended by itself after \(Text.number(ending.at.inSeconds)) s"
        }
    }

    /// The last line of the demo.
    static func result(without: TrioRecord, with: TrioRecord) -> String { "result: without=\(without.outcome), with=\(with.outcome)" }

    /// Whether both fared as the demo claims.
    static func isProof(without: TrioRecord, with: TrioRecord) -> Bool {
        (!without.victims.isEmpty || without.lostOrders > 0) && with.survived && with.lostOrders == 0
    }
}

/// What is told of a member, over time.
enum TrioState: String, CaseIterable {
    case running, warned, leaving, suspended, ended

    /// As people read it.
    var text: String {
        switch self {
        case .running: "running"
        case .warned: "warned"
        case .leaving: "going to the background"
        case .suspended: "stands still"
        case .ended: "ended"
        }
    }
}

extension TrioRecord {
    struct Band: Equatable {
        var from: Duration
        var to: Duration
        var state: TrioState
    }

    /// The states of a member, one after the other from the start to the end of the play; none that lasted for no time.
    func bands(of unit: String) -> [Band] {
        var bands: [Band] = [], current = Band(from: .zero, to: .zero, state: .running)
        func close(_ at: Duration) {
            current.to = at
            if current.to > current.from { bands.append(current) }
        }
        let ending = endings[unit]
        for audit in audits where audit.unit == unit && ending.map({ audit.at < $0.at }) ?? true {
            guard let state = Self.state(after: audit, from: current.state), state != current.state else { continue }
            close(audit.at)
            current = Band(from: max(current.from, audit.at), to: .zero, state: state)
        }
        if let ending {
            close(ending.at)
            current = Band(from: ending.at, to: .zero, state: .ended)
        }
        close(length)
        return bands
    }

    /// What a member is after that; `nil` if that changes nothing.
    private static func state(after audit: AuditRecord, from state: TrioState) -> TrioState? {
        guard !audit.isDryRun, audit.result?.failure == nil else { return nil }
        switch (audit.action, audit.result) {
        case (.background, nil): return .leaving
        case (.suspend, .some): return .suspended
        case (.resume, .some), (.start, .some): return .running
        case (.warn(let level), .some): return state == .running || state == .warned ? (level > .normal ? .warned : .running) : nil
        default: return nil
        }
    }
}
