import Plimsoll

/// A plain-language account, from the journal, of the actions on a unit and their reasons.
package struct Explanation: Sendable, Hashable, CustomStringConvertible {
    package var unit: String
    /// One sentence per decision, in order of time.
    package var sentences: [String]

    /// - Parameter records: the records of all units, in order of time; those of other units are ignored.
    package init(of unit: String, from records: [AuditRecord]) {
        self.unit = unit
        sentences = []
        // Sentences that wait for their outcome, by action.
        var open: [UnitAction: Int] = [:]
        for record in records where record.unit == unit {
            if let result = record.result {
                let tail = Self.describe(result, of: record.action)
                if let index = open.removeValue(forKey: record.action) {
                    sentences[index] += " \(tail)"
                } else {
                    sentences.append(
                        "\(Self.time(record.at))  \(Self.describe(record.action, isDryRun: record.isDryRun)). \(tail)")
                }
            } else {
                open[record.action] = record.isDryRun ? nil : sentences.count
                let shortage =
                    record.level == .normal
                    ? "memory was not short"
                    : "memory was at level \(record.level)\(record.shortfall > .zero ? ", \(record.shortfall) short" : "")"
                sentences.append(
                    "\(Self.time(record.at))  \(Self.describe(record.action, isDryRun: record.isDryRun)) because \(printable(record.reason)) (\(shortage))."
                )
            }
        }
    }

    /// Returns a single record as a sentence.
    package static func sentence(_ record: AuditRecord) -> String {
        guard let result = record.result else {
            return
                "\(record.unit): \(record.isDryRun ? "would have been (dry run) " : "")\(done(record.action)); \(printable(record.reason))"
        }
        return "\(record.unit): \(record.action.kind.rawValue): \(describe(result, of: record.action))"
    }

    package var description: String {
        sentences.isEmpty
            ? "\(unit): no action so far." : "\(unit):\n" + sentences.map { "  \($0)" }.joined(separator: "\n")
    }

    private static func describe(_ action: UnitAction, isDryRun: Bool) -> String {
        "The unit \(isDryRun ? "would have been" : "was") \(done(action))"
    }

    private static func done(_ action: UnitAction) -> String {
        switch action {
        case .warn(let level): "notified that memory is at level \(level)"
        case .release(let amount): "asked to release \(amount)"
        case .share(let share):
            share.bytes.map { "given \(ByteCount($0)) of \(ByteCount(share.total)) for its caches" }
                ?? "given all memory for its caches that is free"
        case .background: "sent to the background"
        case .suspend: "suspended"
        case .resume(.room): "resumed"
        case .resume(.keepAlive): "resumed for keep-alive"
        case .resume(.ending): "resumed to be able to end"
        case .reclaim(let amount): "relieved of \(amount) of reclaimable memory"
        case .throttle(true): "throttled in processor and disk"
        case .throttle(false): "no longer throttled"
        case .end(.killSuspended): "killed while suspended"
        case .end(.ask(let grace)): "asked to end within \(time(grace))"
        case .end(.kill): "killed"
        case .start: "started"
        }
    }

    private static func describe(_ result: AuditRecord.Result, of action: UnitAction) -> String {
        if let failure = result.failure { return "That failed after \(time(result.took)): \(printable(failure))." }
        let relief = result.relief > .zero ? " and freed \(result.relief)" : ""
        return "That took \(time(result.took))\(relief)."
    }

    /// Formats a duration as seconds with at most one decimal.
    private static func time(_ duration: Duration) -> String {
        let tenths = duration.wholeMicroseconds / 100_000
        return tenths % 10 == 0 ? "\(tenths / 10) s" : "\(tenths / 10).\(abs(tenths % 10)) s"
    }
}
