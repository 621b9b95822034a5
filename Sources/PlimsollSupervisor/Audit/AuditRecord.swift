package import Plimsoll

/// One line of the supervisor's journal: a decision or an outcome, with the memory shortage at that time.
///
/// The format is one JSON object per line, with keys in a fixed order. Times are in microseconds on the supervisor's
/// clock, sizes in bytes:
///
///     {"v":1,"at":12500000,"what":"decision","unit":"web","action":"end","how":"ask","grace":10000000,"reason":"…","level":"critical","shortfall":1048576}
package struct AuditRecord: Sendable, Hashable {
    package struct Result: Sendable, Hashable {
        /// Time from the decision to its completion.
        package var took: Duration
        /// Decrease of the unit's charge.
        package var relief: ByteCount
        package var failure: String?

        package init(took: Duration, relief: ByteCount, failure: String? = nil) {
            (self.took, self.relief, self.failure) = (took, relief, failure)
        }
    }

    /// Time of the decision, or of its completion.
    package var at: Duration
    package var unit: String
    package var action: UnitAction
    package var reason: String
    package var level: PressureLevel
    package var shortfall: ByteCount
    package var isDryRun: Bool
    /// The result; `nil` for a decision.
    package var result: Result?

    package init(_ decision: Decision, level: PressureLevel, shortfall: ByteCount) {
        (at, unit, action, reason, isDryRun) = (
            decision.at, decision.unit, decision.action, decision.reason, decision.isDryRun
        )
        (self.level, self.shortfall) = (level, shortfall)
    }

    package init(_ outcome: Outcome, level: PressureLevel, shortfall: ByteCount) {
        self.init(outcome.decision, level: level, shortfall: shortfall)
        at = outcome.at
        result = Result(took: outcome.at - outcome.decision.at, relief: outcome.relief, failure: outcome.failure)
    }

    /// The version of the format that is written, and the newest that is read.
    static let version = 1
}

extension AuditRecord {
    /// Appends the record as a line, newline included. Allocates nothing if `buffer` has the capacity: lines are
    /// written while memory is short.
    package func write(to buffer: inout [UInt8]) {
        var line = JSONLineWriter()
        line.add("v", Self.version, to: &buffer)
        line.add("at", at.wholeMicroseconds, to: &buffer)
        line.add("what", result == nil ? "decision" : "outcome", to: &buffer)
        line.add("unit", unit, to: &buffer)
        line.add("action", action.kind.rawValue, to: &buffer)
        switch action {
        case .warn(let level): line.add("told", level.description, to: &buffer)
        case .release(let amount), .reclaim(let amount): line.add("bytes", amount.bytes, to: &buffer)
        case .share(let share):
            if let bytes = share.bytes { line.add("bytes", bytes, to: &buffer) }
            line.add("of", share.total, to: &buffer)
        case .resume(let reason): line.add("how", reason.rawValue, to: &buffer)
        case .throttle(let on): line.add("on", on, to: &buffer)
        case .end(let ending):
            line.add("how", ending.name, to: &buffer)
            if case .ask(let grace) = ending { line.add("grace", grace.wholeMicroseconds, to: &buffer) }
        case .background, .suspend, .start: break
        }
        line.add("reason", reason, to: &buffer)
        line.add("level", level.description, to: &buffer)
        line.add("shortfall", shortfall.bytes, to: &buffer)
        if isDryRun { line.add("dry", true, to: &buffer) }
        if let result {
            line.add("took", result.took.wholeMicroseconds, to: &buffer)
            line.add("relief", result.relief.bytes, to: &buffer)
            if let failure = result.failure { line.add("failure", failure, to: &buffer) }
        }
        line.end(&buffer)
    }

    /// The record as a line, without the newline.
    package var line: String {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(256)
        write(to: &bytes)
        return String(decoding: bytes.dropLast(), as: UTF8.self)
    }
}

extension UnitAction.Ending {
    var name: String {
        switch self {
        case .killSuspended: "kill-suspended"
        case .ask: "ask"
        case .kill: "kill"
        }
    }
}

extension Duration {
    /// The duration in microseconds, saturated at the range of `Int`.
    var wholeMicroseconds: Int {
        let (seconds, rest) = components
        let (scaled, isTooLarge) = Int(seconds).multipliedReportingOverflow(by: 1_000_000)
        let (sum, overflows) = scaled.addingReportingOverflow(Int(rest / 1_000_000_000_000))
        return isTooLarge || overflows ? (seconds < 0 ? .min : .max) : sum
    }
}
