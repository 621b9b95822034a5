import Plimsoll

/// The transition from running to frozen.
extension SupervisorEngine {
    /// Freezes units whose time to leave is over, or ends the units that exit instead of being frozen.
    mutating func finishLeaving(_ pass: inout DecisionPass) {
        let now = pass.at
        for index in pass.units.indices {
            let unit = pass.units[index]
            guard unit.report.state == .leaving, unit.isFree else { continue }
            let end = unit.leaveEnd(policy)
            // A freeze loses nothing, and a frozen unit allocates nothing more.
            let hasNoTime = pass.level == .critical && pass.timeLeft.map { now + $0 < end } ?? false
            if now < end, !unit.report.isReady, !hasNoTime {
                if now >= unit.report.since + policy.leaveTime {
                    pass.spare(index, "\(unit.report.tokens) background tasks still run")
                }
                pass.remind(at: end)
                continue
            }
            if pass.level == .normal, unit.memory.footprint != nil {
                // The unit was sent to the background because memory was short. Memory is free again, so a freeze would
                // be pointless (C91).
                pass.units[index].memory.footprint = nil
                pass.decide(.resume(.room), of: index, "memory is no longer short")
            } else if unit.report.exitsOnSuspend {
                if wait == nil, unit.canEnd(at: now) {
                    self.end(index, &pass, "the unit ends instead of being suspended")
                }
            } else if pass.level == .critical, unit.report.tokens > 0 {
                // The unit has had its time. If memory stays short, `relieve` ends the unit as a victim.
                continue
            } else if unit.report.holdsLocks {
                // Waiters for the locks would block for as long as the unit is frozen (C48).
                pass.spare(index, "the unit holds file locks that other processes may wait for")
            } else if unit.canSuspend(at: now) {
                // The unit returns with room, also if it requested the freeze. Only units frozen by another party stay
                // frozen.
                pass.units[index].memory.footprint = unit.memory.footprint ?? unit.report.charge
                suspend(
                    index, &pass,
                    unit.report.isReady
                        ? "the unit is ready to be suspended"
                        : now < end
                            ? "memory lasts for \((pass.timeLeft ?? .zero).wholeMicroseconds / 1000) ms only"
                            : "its \(policy.leaveTime) to leave have passed")
            }
        }
    }

    /// Sends units that ask to be frozen to the background, at any pressure level, because their own memory is short.
    /// Refuses if the unit is needed in the foreground or can't be frozen. A refused unit gets no notice and continues
    /// to run.
    mutating func grantSuspension(_ pass: inout DecisionPass) {
        let now = pass.at
        for index in pass.units.indices {
            let unit = pass.units[index]
            guard let asked = unit.report.suspensionRequestedAt, unit.runs, unit.isFree, unit.memory.wokenAt == nil
            else {
                continue
            }
            // The request expires: the unit may have found memory meanwhile.
            guard now < asked + policy.failureRest else { continue }
            pass.remind(at: asked + policy.failureRest)
            if unit.isInFront {
                pass.spare(index, "the unit requests suspension, but serves the foreground")
            } else if unit.report.exitsOnSuspend ? !unit.canEnd(at: now) : unit.report.suspension == .never {
                pass.spare(index, "the unit requests suspension, but cannot be suspended")
            } else if unit.memory.hasFailed(.background, at: now) || unit.memory.hasFailed(.suspend, at: now) {
                pass.spare(index, "the unit requests suspension, but that failed a moment ago")
            } else {
                pass.decide(.background, of: index, "the unit requests suspension: its own memory is short")
            }
        }
    }

    mutating func suspend(_ index: Int, _ pass: inout DecisionPass, _ reason: String) {
        pass.units[index].memory.wokenAt = nil
        pass.decide(.suspend, of: index, reason)
    }
}

/// Notices to units.
extension SupervisorEngine {
    /// Notifies one unit at a time. Sends a unit to the background if frozen units can't cover the shortfall. Otherwise
    /// notifies a unit of the level.
    mutating func notify(_ pass: inout DecisionPass) {
        let now = pass.at, level = pass.level
        guard now >= pacer.next(policy) else { return pass.remind(at: pacer.next(policy)) }
        // Charge of the units that are frozen, or will be soon, and can be ended.
        var covered = ByteCount.zero, suspended = ByteCount.zero, reachable = ByteCount.zero
        // Units leave one at a time: the relief of one is measured before another must go.
        var isAnyOnItsWay = wait != nil
        for unit in pass.units {
            let charge = unit.report.charge
            if unit.isReachable, unit.report.isWarnable { reachable += charge }
            guard unit.canEnd(at: now) else { continue }
            if unit.report.state == .suspended { suspended += charge }
            // The report of a unit that is being told to leave may still say since when the unit ran.
            let told = unit.memory.pending.flatMap { $0.action == .background ? $0.at : nil }
            let goes = told != nil || unit.report.state == .leaving || unit.report.state == .suspending
            if goes, now < max(unit.leaveEnd(policy), (told ?? .zero) + policy.leaveTime) { isAnyOnItsWay = true }
            if unit.report.state == .suspended || goes || unit.memory.wokenAt != nil { covered += charge }
        }
        // Running units are warned only if ending all frozen units can't cover the shortfall (C75).
        let mayWarn = pass.isShort && (level == .critical || suspended < pass.needed)
        if level == .critical, pass.isShort, covered < pass.needed, !isAnyOnItsWay,
            let index = VictimOrder.running(pass.units, where: { mayLeave($0, at: now) })
        {
            pass.units[index].memory.footprint = pass.units[index].report.charge
            sendNotices(index, &pass, reachable: reachable, mayWarn: mayWarn)
            pass.decide(
                .background, of: index, "units that are suspended or leaving can free only \(covered); \(pass.shortage)"
            )
            pacer.notified(at: now)
        } else if let index = VictimOrder.notified(pass.units, where: { isDue($0, pass, mayWarn: mayWarn) }) {
            sendNotices(index, &pass, reachable: reachable, mayWarn: mayWarn)
            pacer.notified(at: now)
        }
        remindOfNotices(&pass, mayWarn: mayWarn, isShort: pass.isShort && covered < pass.needed)
    }

    private func mayLeave(_ unit: UnitSnapshot, at now: Duration) -> Bool {
        !unit.isInFront && unit.runs && unit.isFree && unit.memory.wokenAt == nil && unit.canEnd(at: now)
            && !unit.memory.hasFailed(.background, at: now) && !unit.memory.hasFailed(.suspend, at: now)
    }

    private func isDue(_ unit: UnitSnapshot, _ pass: DecisionPass, mayWarn: Bool) -> Bool {
        guard unit.isReachable, unit.isFree, unit.report.isWarnable, !unit.memory.hasFailed(.warn, at: pass.at) else {
            return false
        }
        return pacer.due(pass.level, notified: unit.memory.notified(unit.report), mayWarn: mayWarn, policy).map {
            $0 <= pass.at
        } ?? false
    }

    /// Notifies the unit of the level and asks for a share of the shortfall in proportion to the charge.
    private mutating func sendNotices(_ index: Int, _ pass: inout DecisionPass, reachable: ByteCount, mayWarn: Bool) {
        guard isDue(pass.units[index], pass, mayWarn: mayWarn) else { return }
        let unit = pass.units[index], before = unit.memory.notified(unit.report).level
        pass.record(
            .warn(pass.level), to: index,
            before > pass.level ? "the level has been lower for \(policy.fallHold)" : pass.shortage)
        pass.units[index].memory.notice = .init(level: pass.level, at: pass.at)
        guard pass.isShort, before <= pass.level, reachable > .zero else { return }
        let share = Double(unit.report.charge.bytes) / Double(reachable.bytes), amount = pass.needed * share
        if amount > .zero {
            pass.record(.release(amount), to: index, "its share of \(pass.needed), in proportion to its size")
        }
    }

    private func remindOfNotices(_ pass: inout DecisionPass, mayWarn: Bool, isShort: Bool) {
        let next = pacer.next(policy)
        var first: Duration?
        for unit in pass.units
        where unit.isReachable && unit.memory.pending == nil && unit.report.isWarnable
            && !unit.memory.hasFailed(.warn, at: pass.at)
        {
            guard let due = pacer.due(pass.level, notified: unit.memory.notified(unit.report), mayWarn: mayWarn, policy)
            else {
                continue
            }
            first = min(first ?? due, due)
        }
        if let first { pass.remind(at: max(first, next)) }
        if isShort, pass.level == .critical, pass.units.contains(where: { mayLeave($0, at: pass.at) }) {
            pass.remind(at: next)
        }
    }
}
