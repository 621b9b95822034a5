import Plimsoll

/// A description of a manager's state and actions, with reasons, in plain sentences.
struct AdminExplanation: Sendable {
    /// One sentence on the state of memory, one for each limiter that refuses work for lack of memory, and one for
    /// each purgeable that does not respond. One sentence for each action follows, and one for each move of memory
    /// among caches, oldest first.
    let sentences: [String]

    /// Creates the sentences for `status`.
    ///
    /// - Parameter last: number of most recent actions to include.
    init(_ status: ManagerStatus, last: Int = .max) {
        let actions = status.actions.suffix(max(0, last))
        let unanswered = status.holders.compactMap { holder in
            holder.unansweredSeconds.map {
                "The purgeable \"\(holder.name)\" has not answered for \(Self.seconds($0)): its own code blocks."
            }
        }
        sentences =
            [Self.state(status)] + status.admissions.compactMap { Self.shedding($0) } + unanswered
            + (actions.isEmpty ? ["No action so far."] : actions.map { Self.sentence($0, at: status.atSeconds) })
            + (status.moves ?? []).suffix(max(0, last)).map { Self.sentence($0, at: status.atSeconds) }
    }

    /// Returns `3 s ago memory moved among caches: "pages" from 32 MiB to 40 MiB, …`.
    private static func sentence(_ move: MoveStatus, at now: Double) -> String {
        let changes = move.changes.map { "\"\($0.name)\" from \(bytes($0.beforeBytes)) to \(bytes($0.afterBytes))" }
        let saved = (move.savedShare * 1000).rounded() / 10
        return
            "\(seconds(max(0, now - move.atSeconds))) ago, shares of memory moved: \(changes.joined(separator: ", "))."
            + " In the end the move saves \(saved) % of the load time that memory can save."
    }

    private static func state(_ status: ManagerStatus) -> String {
        guard let memory = status.memory else { return "The manager has not read memory yet: it does not run." }
        var text = "Memory is at level \(status.level): \(bytes(memory.usageBytes)) are used"
        if let limit = memory.limitBytes { text += " of \(bytes(limit))" }
        if let available = memory.availableBytes { text += ", \(bytes(available)) can still be allocated" }
        if let warning = memory.warningLineBytes, let critical = memory.criticalLineBytes {
            text += "; a warning begins at \(bytes(warning)) that cannot be reclaimed, critical at \(bytes(critical))"
        }
        text += "."
        if memory.heldSeconds(at: status.atSeconds) == nil, let why = reasons(memory.evidence) {
            text += " The last reading showed \(memory.observed), because \(why)."
        }
        if let left = memory.heldSeconds(at: status.atSeconds) {
            let why = reasons(memory.heldFor ?? "").map { " The level was reached because \($0)." } ?? ""
            text +=
                " The last reading showed \(memory.observed) only; \(status.level) is held \(left > 0 ? "for \(seconds(left)) more" : "until the next reading")"
            text += ", unless a reading shows it again.\(why)"
        }
        return text + (status.isDryRun ? " The policy only decides and reports (dry run)." : "")
    }

    private static func shedding(_ admission: AdmissionStatus) -> String? {
        admission.refusedPerSecond.map { "Since memory is short, \"\(admission.name)\" refuses \(rate($0)) a second." }
    }

    private static func rate(_ perSecond: Double) -> String {
        guard perSecond.isFinite, abs(perSecond) < 1e12 else { return "\(perSecond)" }
        let tenths = Int((perSecond * 10).rounded())
        return tenths % 10 == 0 || tenths >= 1000 ? "\(Int(perSecond.rounded()))" : "\(tenths / 10).\(tenths % 10)"
    }

    private static func sentence(_ action: ActionStatus, at now: Double) -> String {
        var text = "\(seconds(max(0, now - action.beganSeconds))) ago, at level \(action.level), "
        switch action.origin {
        case ActionReport.Origin.operator.rawValue: text += "at an operator's request"
        case ActionReport.Origin.background.rawValue: text += "on the way to the background"
        default: text += "because \(reasons(action.evidence) ?? "memory was short")"
        }
        let refusal =
            action.outcome.hasPrefix("refused")
            ? String(action.outcome.dropFirst("refused".count).drop { $0 == ":" || $0 == " " }) : nil
        text += ": " + (refusal == nil ? what(action) : intent(action))
        if let refusal { text += ", which was refused" + (refusal.isEmpty ? "" : ": \(refusal)") }
        if action.mode == ActionMode.dryRun.rawValue { text += ", but only reported (dry run)" }
        text += "."
        if action.residentBeforeBytes != action.residentAfterBytes, action.mode != ActionMode.dryRun.rawValue {
            text +=
                " Resident memory went from \(bytes(action.residentBeforeBytes)) to \(bytes(action.residentAfterBytes))"
            text +=
                ", usage from \(bytes(action.usageBeforeBytes)) to \(bytes(action.usageAfterBytes)), in \(seconds(action.tookSeconds))."
        }
        if let names = overrun(action) { text += " Not within its time: \(names)." }
        return text
    }

    /// Returns the names of the participants that exceeded their time.
    private static func overrun(_ action: ActionStatus) -> String? {
        let word = "overran: "
        if action.outcome.hasPrefix(word) { return String(action.outcome.dropFirst(word.count)) }
        return ["done", "dry run"].contains(action.outcome) || action.outcome.hasPrefix("refused")
            ? nil : action.outcome
    }

    /// Returns a description of an action that was refused.
    private static func intent(_ action: ActionStatus) -> String {
        switch ActionKind(rawValue: action.action) {
        case .warn: "observers were to be notified"
        case .release: "purgeables were to release memory"
        case .cancelLargestRequest: "the request that holds most memory was to be cancelled"
        case .quiesce: "pausable components were to be paused"
        case .expireBackgroundTasks: "background tasks were to be asked to end"
        case .suspend: "the process was to be suspended"
        case .terminate: "the process was to save its state and end"
        case .makeRoom: "volatile memory was to be released to keep a margin free"
        case .noticeDrops: "volatile memory was to be counted"
        case nil: action.action
        }
    }

    private static func what(_ action: ActionStatus) -> String {
        switch ActionKind(rawValue: action.action) {
        case .warn: return "observers were notified"
        case .release:
            let asked =
                action.askedBytes == .max || action.askedBytes == 0
                ? "all they could release" : bytes(action.askedBytes)
            var text =
                "purgeables were asked for \(asked) and released \(ByteCount(action.releasedBytes) + ByteCount(action.releasedVolatileBytes))"
            if action.releasedVolatileBytes > 0 { text += ", \(bytes(action.releasedVolatileBytes)) of it volatile" }
            return text + (action.takenBytes > 0 ? "; the kernel had reclaimed \(bytes(action.takenBytes)) before" : "")
        case .cancelLargestRequest:
            guard let name = action.cancelledRequest else { return "the request that held most memory was cancelled" }
            return
                "the request \"\(printable(name, atMost: 100))\", which held \(bytes(action.cancelledBytes ?? 0)), was cancelled"
        case .quiesce: return "pausable components were paused"
        case .expireBackgroundTasks: return "background tasks were asked to end"
        case .suspend:
            // The supervisor decides whether to freeze the process, and records the decision in a journal.
            return action.outcome == "done"
                ? "the supervisor was asked to suspend the process" : "the process was to be suspended"
        case .terminate: return "the process was to save its state and end"
        case .makeRoom:
            return "\(bytes(action.releasedVolatileBytes)) of volatile memory were released to keep a margin free"
        case .noticeDrops:
            return "the kernel was found to have reclaimed \(bytes(action.takenBytes)) of volatile memory"
        case nil: return action.action
        }
    }

    /// Returns evidence, given as names separated by commas, in words; `nil` if there is none.
    static func reasons(_ evidence: String) -> String? {
        let words = evidence.split(separator: ",").map { $0.drop { $0 == " " } }.compactMap { name -> String? in
            switch name {
            case "none": nil
            case "headroom": "little is left below the limit"
            case "growth": "usage grows and would meet the limit soon"
            case "stall": "tasks stall on memory"
            case "limit events": "the kernel found the group at its limit"
            case "limit lowered": "the limit was lowered"
            case "announced": "the service manager announced it"
            case "simulated": "an operator simulates it"
            default: String(name)
            }
        }
        return words.isEmpty ? nil : words.joined(separator: " and ")
    }

    private static func bytes(_ count: Int) -> String { "\(ByteCount(count))" }

    /// Returns a duration in a readable unit: `4 ms`, `1.5 s`, `12 min`.
    static func seconds(_ value: Double) -> String {
        func tenths(_ value: Double) -> String {
            let tenths = Int((value * 10).rounded())
            return tenths % 10 == 0 || tenths >= 100 ? "\(Int(value.rounded()))" : "\(tenths / 10).\(tenths % 10)"
        }
        guard value.isFinite, abs(value) < 1e9 else { return "\(value) s" }
        if value < 0.0995 { return "\(tenths(value * 1000)) ms" }
        return value < 120
            ? "\(tenths(value)) s" : value < 7200 ? "\(Int(value / 60)) min" : "\(tenths(value / 3600)) h"
    }
}

extension MemoryStatus {
    /// Returns the minimum time for which the current level is still held, or `nil` if the level is not held. `now`
    /// is on the clock of `status.atSeconds`.
    package func heldSeconds(at now: Double) -> Double? { heldUntilSeconds.map { max(0, $0 - now) } }
}
