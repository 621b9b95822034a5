import Plimsoll

/// On the way from running to standing still.
extension SupervisorEngine {
    /// Units whose time to leave is over stand still, or end if they do that instead.
    mutating func finishLeaving(_ look: inout Look) {
        let now = look.at
        for index in look.units.indices {
            let unit = look.units[index]
            guard unit.report.state == .leaving, unit.isFree else { continue }
            let end = unit.leaveEnd(policy)
            // Standing still loses nothing, and whoever stands still takes no more.
            let hasNoTime = look.level == .critical && look.timeLeft.map { now + $0 < end } ?? false
            if now < end, !unit.report.isReady, !hasNoTime {
                if now >= unit.report.since + policy.leaveTime { look.spare(index, "\(unit.report.tokens) background tasks are alive") }
                look.remind(at: end)
                continue
            }
            if look.level == .normal, unit.memory.footprint != nil {
                // It was sent away for want of memory, and there is enough again: standing still would serve nobody (C91).
                look.units[index].memory.footprint = nil
                look.decide(.resume(.room), of: index, "memory is no longer short")
            } else if unit.report.exitsOnSuspend {
                if wait == nil, unit.canEnd(at: now) { self.end(index, &look, "it ends instead of standing still") }
            } else if look.level == .critical, unit.report.tokens > 0 {
                // Ended as a victim, if it comes to that: it has had its time.
                continue
            } else if unit.report.holdsLocks {
                // Others would wait for as long as it stands still (C48).
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

    /// A unit that asks to stand still is sent away, if nobody waits for it and it can: its own memory is short, whatever the level of all. Whoever is refused
    /// is told nothing, and goes on as it is.
    mutating func grantStandstill(_ look: inout Look) {
        let now = look.at
        for index in look.units.indices {
            let unit = look.units[index]
            guard let asked = unit.report.asksToStandSince, unit.runs, unit.isFree, unit.memory.wokenAt == nil else { continue }
            // Not for ever: memory may have been found meanwhile.
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

/// Units are told.
extension SupervisorEngine {
    /// One unit at a time: who is sent to the background if what stands still isn't enough, else who has to hear of the level.
    mutating func notify(_ look: inout Look) {
        let now = look.at, level = look.level
        guard now >= pacer.next(policy) else { return look.remind(at: pacer.next(policy)) }
        // What stands still or will soon, and can be ended.
        var covered = ByteCount.zero, standing = ByteCount.zero, hearing = ByteCount.zero
        // One at a time, here too: what it brings is seen before another has to go.
        var isAnyOnItsWay = wait != nil
        for unit in look.units {
            let charge = unit.report.charge
            if unit.hears, unit.report.isWarnable { hearing += charge }
            guard unit.canEnd(at: now) else { continue }
            if unit.report.state == .suspended { standing += charge }
            let goes = unit.report.state == .leaving || unit.report.state == .suspending || unit.memory.pending?.action == .background
            if goes, now < unit.leaveEnd(policy) { isAnyOnItsWay = true }
            if unit.report.state == .suspended || goes || unit.memory.wokenAt != nil { covered += charge }
        }
        // Warned of are running units only if ending what stands still can't give enough (C75).
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
        guard unit.hears, unit.isFree, unit.report.isWarnable, !unit.memory.hasFailed(.warn, at: look.at) else { return false }
        return pacer.due(look.level, told: unit.memory.told(unit.report), mayWarn: mayWarn, policy).map { $0 <= look.at } ?? false
    }

    /// Tells the level, and a share of the shortfall according to size.
    private mutating func tell(_ index: Int, _ look: inout Look, hearing: ByteCount, mayWarn: Bool) {
        guard isDue(look.units[index], look, mayWarn: mayWarn) else { return }
        let unit = look.units[index], before = unit.memory.told(unit.report).level
        look.tell(.warn(look.level), to: index, before > look.level ? "the level has been lower for \(policy.fallHold)" : look.shortage)
        look.units[index].memory.notice = .init(level: look.level, at: look.at)
        guard look.isShort, before <= look.level, hearing > .zero else { return }
        let share = Double(unit.report.charge.bytes) / Double(hearing.bytes), amount = look.needed * share
        if amount > .zero { look.tell(.release(amount), to: index, "its share of \(look.needed) by its size") }
    }

    private func remindOfNotices(_ look: inout Look, mayWarn: Bool, isShort: Bool) {
        let next = pacer.next(policy)
        var first: Duration?
        for unit in look.units where unit.hears && unit.memory.pending == nil && unit.report.isWarnable && !unit.memory.hasFailed(.warn, at: look.at)
        {
            guard let due = pacer.due(look.level, told: unit.memory.told(unit.report), mayWarn: mayWarn, policy) else { continue }
            first = min(first ?? due, due)
        }
        if let first { look.remind(at: max(first, next)) }
        if isShort, look.level == .critical, look.units.contains(where: { mayLeave($0, at: look.at) }) { look.remind(at: next) }
    }
}
