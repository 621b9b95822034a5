import Plimsoll
import PlimsollSupervisor

// The demo's verdict on both plays.
extension TrioRecord {
    /// Innocent members that the kernel killed, in the members' order.
    var victims: [String] { Trio.innocent.filter { endings[$0]?.cause == .kernel } }

    /// Short outcome: survivors, kills and lost orders.
    var outcome: String {
        let ends = [Ending.Cause.kernel, .supervisor, .itself].compactMap { cause -> String? in
            let ended = Trio.members.compactMap { member in
                endings[member.name].flatMap { ending in
                    ending.cause == cause ? "\(member.name) after \(Text.number(ending.at.inSeconds)) s" : nil
                }
            }
            return ended.isEmpty ? nil : "\(Self.text(cause)): \(ended.joined(separator: " and "))"
        }
        let there = Trio.innocent.filter { isAlive[$0] == true }
        let survivors = there.count == Trio.innocent.count ? "\(there.joined(separator: " and ")) survived" : nil
        let loss = "\(lostOrders == 0 ? "no" : "\(lostOrders)") order\(lostOrders == 1 ? "" : "s") lost"
        return ([survivors].compactMap { $0 } + ends + [loss]).joined(separator: ", ")
    }

    private static func text(_ cause: Ending.Cause) -> String {
        switch cause {
        case .kernel: "killed by the kernel"
        case .supervisor: "ended by the supervisor"
        case .itself: "ended by itself"
        }
    }

    /// Returns the last line of the demo.
    static func result(without: TrioRecord, with: TrioRecord) -> String {
        "result: without=\(without.outcome), with=\(with.outcome)"
    }

    /// Returns true if both plays went as the demo claims.
    static func isProof(without: TrioRecord, with: TrioRecord) -> Bool {
        (!without.victims.isEmpty || without.lostOrders > 0) && with.survived && with.lostOrders == 0
    }
}

/// State of a member over time.
enum TrioState: String, CaseIterable {
    case running, warned, leaving, suspended, ended

    /// Human-readable name.
    var text: String {
        switch self {
        case .running: "running"
        case .warned: "warned"
        case .leaving: "leaving for the background"
        case .suspended: "suspended"
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

    /// Returns the states of a member, in order from the start to the end of the play. Leaves out states of zero
    /// length.
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

    /// Returns the state of a member after a record; `nil` if the record changes nothing.
    private static func state(after audit: AuditRecord, from state: TrioState) -> TrioState? {
        guard !audit.isDryRun, audit.result?.failure == nil else { return nil }
        switch (audit.action, audit.result) {
        case (.background, nil): return .leaving
        case (.suspend, .some): return .suspended
        case (.resume, .some), (.start, .some): return .running
        case (.warn(let level), .some):
            return state == .running || state == .warned ? (level > .normal ? .warned : .running) : nil
        default: return nil
        }
    }
}
