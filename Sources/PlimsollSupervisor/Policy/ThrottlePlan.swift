import Plimsoll

/// The plan for units that exceed their background allowance: throttled first, then ended after a grace time (C36).
enum ThrottlePlan {
    /// Returns the time at which the unit's allowance is spent; `nil` without an allowance, or in the foreground.
    static func spent(_ unit: UnitSnapshot) -> Duration? {
        guard let allowance = unit.report.allowance, let since = unit.report.backgroundSince, !unit.isInFront,
            unit.isReachable
        else { return nil }
        return since + allowance
    }

    static func isDue(_ unit: UnitSnapshot, at now: Duration) -> Bool {
        !unit.report.isThrottled && spent(unit).map { now >= $0 } ?? false
    }

    /// Returns the end of a throttled unit's grace time.
    static func graceEnd(_ unit: UnitSnapshot, _ policy: SupervisorPolicy) -> Duration? {
        guard spent(unit) != nil, unit.report.isThrottled else { return nil }
        return (unit.report.throttledSince ?? unit.report.since) + policy.throttleGrace
    }

    static func mayEnd(_ unit: UnitSnapshot, at now: Duration, _ policy: SupervisorPolicy) -> Bool {
        guard let spent = spent(unit), now >= spent, let end = graceEnd(unit, policy) else { return false }
        return now >= end && (unit.report.tokens == 0 || now >= unit.leaveEnd(policy))
    }

    /// Returns true if the unit is throttled, or is about to be, and is still within its grace time.
    static func isProtected(_ unit: UnitSnapshot, at now: Duration, _ policy: SupervisorPolicy) -> Bool {
        guard let spent = spent(unit), now >= spent else { return false }
        return graceEnd(unit, policy).map { now < $0 } ?? !unit.memory.hasFailed(.throttle, at: now)
    }

    /// Returns true if a throttled unit serves the foreground by now.
    static func isToBeLifted(_ unit: UnitSnapshot, at now: Duration) -> Bool {
        unit.report.isThrottled && unit.isInFront && unit.isReachable && unit.isFree
            && !unit.memory.hasFailed(.throttle, at: now)
    }
}

extension SupervisorEngine {
    /// Lifts the throttle of units that came to the foreground, at any level. Throttles units over their allowance at
    /// any shortage. Without a shortage such units do no harm.
    mutating func throttle(_ pass: inout DecisionPass) {
        for index in pass.units.indices where ThrottlePlan.isToBeLifted(pass.units[index], at: pass.at) {
            pass.decide(.throttle(false), of: index, "the unit serves the foreground")
        }
        guard pass.level > .normal else { return }
        for index in pass.units.indices {
            let unit = pass.units[index]
            guard let spent = ThrottlePlan.spent(unit) else { continue }
            if let end = ThrottlePlan.graceEnd(unit, policy) { pass.remind(at: end) } else { pass.remind(at: spent) }
            guard unit.isFree, ThrottlePlan.isDue(unit, at: pass.at), !unit.memory.hasFailed(.throttle, at: pass.at)
            else { continue }
            pass.decide(
                .throttle(true), of: index,
                "the unit exceeds the \(unit.report.allowance ?? .zero) that it may run in the background; \(pass.level)"
            )
        }
    }
}
