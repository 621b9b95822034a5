import Plimsoll

/// The transition from running to frozen.
extension SupervisorEngine {
    /// Freezes units whose time to leave is over, or ends the units that exit instead of being frozen.
    mutating func finishLeaving(_ look: inout Look) {
        let now = look.at
        for index in look.units.indices {
            let unit = look.units[index]
            guard unit.report.state == .leaving, unit.isFree else { continue }
            let end = unit.leaveEnd(policy)
            // A freeze loses nothing, and a frozen unit allocates nothing more.
            let hasNoTime = look.level == .critical && look.timeLeft.map { now + $0 < end } ?? false
            if now < end, !unit.report.isReady, !hasNoTime {
                if now >= unit.report.since + policy.leaveTime {
                    look.spare(index, "\(unit.report.tokens) background tasks are alive")
                }
                look.remind(at: end)
                continue
            }
            if look.level == .normal, unit.memory.footprint != nil {
                // The unit was sent to the background because memory was short. Memory is free again, so a freeze would
                // be pointless (C91).
                look.units[index].memory.footprint = nil
                look.decide(.resume(.room), of: index, "memory is no longer short")
            } else if unit.report.exitsOnSuspend {
                if wait == nil, unit.canEnd(at: now) { self.end(index, &look, "it ends instead of standing still") }
            } else if look.level == .critical, unit.report.tokens > 0 {
                // The unit has had its time. If memory stays short, `relieve` ends the unit as a victim.
                continue
            } else if unit.report.holdsLocks {
                // Waiters for the locks would block for as long as the unit is frozen (C48).
                look.spare(index, "it holds file locks that others may wait for")
            } else if unit.canStand(at: now) {
                suspend(
                    index, &look,
                    unit.report.isReady
                        ? "it is ready to stand still"
                        : now < end
                            ? "memory lasts for \((look.timeLeft ?? .zero).wholeMicroseconds / 1000) ms only"
                            : "its \(policy.leaveTime) to leave are over")
            }
        }
    }

    /// Sends units that ask to be frozen to the background, at any pressure level, because their own memory is short.
    /// Refuses if the unit is needed in the foreground or can't be frozen. A refused unit gets no notice and continues
    /// to run.
    mutating func grantStandstill(_ look: inout Look) {
        let now = look.at
        for index in look.units.indices {
            let unit = look.units[index]
            guard let asked = unit.report.asksToStandSince, unit.runs, unit.isFree, unit.memory.wokenAt == nil else {
                continue
            }
            // The request expires: the unit may have found memory meanwhile.
            guard now < asked + policy.failureRest else { continue }
            look.remind(at: asked + policy.failureRest)
            if unit.isInFront {
                look.spare(index, "it asks to stand still, but somebody waits for it")
            } else if unit.report.exitsOnSuspend ? !unit.canEnd(at: now) : unit.report.suspension == .never {
                look.spare(index, "it asks to stand still, but can't be made to")
            } else if unit.memory.hasFailed(.background, at: now) || unit.memory.hasFailed(.suspend, at: now) {
                look.spare(index, "it asks to stand still, but that failed a moment ago")
            } else {
                look.decide(.background, of: index, "it asks to stand still: its own memory is short")
            }
        }
    }

    mutating func suspend(_ index: Int, _ look: inout Look, _ reason: String) {
        look.units[index].memory.wokenAt = nil
        look.decide(.suspend, of: index, reason)
    }
}

/// Notices to units.
extension SupervisorEngine {
    /// Notifies one unit at a time. Sends a unit to the background if frozen units can't cover the shortfall. Otherwise
    /// notifies a unit of the level.
    mutating func notify(_ look: inout Look) {
        let now = look.at, level = look.level
        guard now >= pacer.next(policy) else { return look.remind(at: pacer.next(policy)) }
        // Charge of the units that are frozen, or will be soon, and can be ended.
        var covered = ByteCount.zero, standing = ByteCount.zero, hearing = ByteCount.zero
        // Units leave one at a time: the relief of one is measured before another must go.
        var isAnyOnItsWay = wait != nil
        for unit in look.units {
            let charge = unit.report.charge
            if unit.hears, unit.report.isWarnable { hearing += charge }
            guard unit.canEnd(at: now) else { continue }
            if unit.report.state == .suspended { standing += charge }
            let goes =
                unit.report.state == .leaving || unit.report.state == .suspending
                || unit.memory.pending?.action == .background
            if goes, now < unit.leaveEnd(policy) { isAnyOnItsWay = true }
            if unit.report.state == .suspended || goes || unit.memory.wokenAt != nil { covered += charge }
        }
        // Running units are warned only if ending all frozen units can't cover the shortfall (C75).
        let mayWarn = look.isShort && (level == .critical || standing < look.needed)
        if level == .critical, look.isShort, covered < look.needed, !isAnyOnItsWay,
            let index = VictimOrder.running(look.units, where: { mayLeave($0, at: now) })
        {
            look.units[index].memory.footprint = look.units[index].report.charge
            tell(index, &look, hearing: hearing, mayWarn: mayWarn)
            look.decide(.background, of: index, "what stands still or will can give \(covered); \(look.shortage)")
            pacer.told(at: now)
        } else if let index = VictimOrder.told(look.units, where: { isDue($0, look, mayWarn: mayWarn) }) {
            tell(index, &look, hearing: hearing, mayWarn: mayWarn)
            pacer.told(at: now)
        }
        remindOfNotices(&look, mayWarn: mayWarn, isShort: look.isShort && covered < look.needed)
    }

    private func mayLeave(_ unit: Candidate, at now: Duration) -> Bool {
        !unit.isInFront && unit.runs && unit.isFree && unit.memory.wokenAt == nil && unit.canEnd(at: now)
            && !unit.memory.hasFailed(.background, at: now) && !unit.memory.hasFailed(.suspend, at: now)
    }

    private func isDue(_ unit: Candidate, _ look: Look, mayWarn: Bool) -> Bool {
        guard unit.hears, unit.isFree, unit.report.isWarnable, !unit.memory.hasFailed(.warn, at: look.at) else {
            return false
        }
        return pacer.due(look.level, told: unit.memory.told(unit.report), mayWarn: mayWarn, policy).map {
            $0 <= look.at
        } ?? false
    }

    /// Notifies the unit of the level and asks for a share of the shortfall in proportion to the charge.
    private mutating func tell(_ index: Int, _ look: inout Look, hearing: ByteCount, mayWarn: Bool) {
        guard isDue(look.units[index], look, mayWarn: mayWarn) else { return }
        let unit = look.units[index], before = unit.memory.told(unit.report).level
        look.tell(
            .warn(look.level), to: index,
            before > look.level ? "the level has been lower for \(policy.fallHold)" : look.shortage)
        look.units[index].memory.notice = .init(level: look.level, at: look.at)
        guard look.isShort, before <= look.level, hearing > .zero else { return }
        let share = Double(unit.report.charge.bytes) / Double(hearing.bytes), amount = look.needed * share
        if amount > .zero { look.tell(.release(amount), to: index, "its share of \(look.needed) by its size") }
    }

    private func remindOfNotices(_ look: inout Look, mayWarn: Bool, isShort: Bool) {
        let next = pacer.next(policy)
        var first: Duration?
        for unit in look.units
        where unit.hears && unit.memory.pending == nil && unit.report.isWarnable
            && !unit.memory.hasFailed(.warn, at: look.at)
        {
            guard let due = pacer.due(look.level, told: unit.memory.told(unit.report), mayWarn: mayWarn, policy) else {
                continue
            }
            first = min(first ?? due, due)
        }
        if let first { look.remind(at: max(first, next)) }
        if isShort, look.level == .critical, look.units.contains(where: { mayLeave($0, at: look.at) }) {
            look.remind(at: next)
        }
    }
}
