import Plimsoll

/// The choice of victims while memory is short.
extension SupervisorEngine {
    /// Takes one step of relief, unless an earlier step is still being waited for.
    mutating func relieve(_ pass: inout DecisionPass) {
        guard pass.isShort, wait == nil else { return }
        let now = pass.at
        if reclaim(&pass) || endSuspended(&pass) { return }
        guard pass.level == .critical else { return }
        if endBackground(&pass) { return }
        // Before any foreground unit is touched, units that are being frozen or are ending must give first. So must
        // units that can only be killed once more.
        let givesFirst = { (unit: UnitSnapshot) in
            (!unit.isInFront || unit.report.state == .suspended) && unit.canEnd(at: now)
                || !unit.isInFront && unit.memory.isGivenUp
        }
        if pass.units.contains(where: { givesFirst($0) && $0.report.charge > .zero }) { return }
        endForeground(&pass)
    }

    /// Reclaims memory from frozen units before any unit is ended. Reclaimed pages return on demand.
    private mutating func reclaim(_ pass: inout DecisionPass) -> Bool {
        let least = policy.leastReclaim
        let choice = VictimOrder.suspended(pass.units, by: \.report.reclaimable) {
            $0.report.state == .suspended && $0.isFree && $0.report.reclaimable >= least
                && !$0.memory.hasFailed(.reclaim, at: pass.at)
        }
        guard let choice else { return false }
        let unit = pass.units[choice], amount = min(unit.report.reclaimable, max(pass.needed, least))
        step(
            .reclaim(amount), on: choice, &pass,
            "the unit is suspended and \(unit.report.reclaimable) of its \(unit.report.charge) are reclaimable; \(pass.shortage)"
        )
        return true
    }

    private mutating func endSuspended(_ pass: inout DecisionPass) -> Bool {
        let now = pass.at
        let choice = VictimOrder.suspended(pass.units, by: \.report.charge) {
            $0.report.state == .suspended && $0.isFree && $0.canEnd(at: now) && $0.report.charge > .zero
        }
        guard let choice else { return false }
        let unit = pass.units[choice]
        let reason =
            "the unit is the largest suspended one with \(unit.report.charge)\(unit.comesBack ? ", apart from units that restart at once" : "")"
        end(choice, &pass, "\(reason); \(pass.shortage)")
        return true
    }

    /// Ends background units that were told to leave and can't be frozen, and units that were throttled long enough.
    private mutating func endBackground(_ pass: inout DecisionPass) -> Bool {
        let now = pass.at
        let choice =
            VictimOrder.running(pass.units) {
                ThrottlePlan.mayEnd($0, at: now, policy) && $0.isFree && $0.canEnd(at: now)
            }
            ?? VictimOrder.running(pass.units) { isDone($0, at: now) && !ThrottlePlan.isProtected($0, at: now, policy) }
            ?? (isOnlyProtected(pass) ? VictimOrder.running(pass.units) { isDone($0, at: now) } : nil)
        guard let choice else { return false }
        let unit = pass.units[choice]
        let why: String
        if ThrottlePlan.mayEnd(unit, at: now, policy) {
            why = "the unit has been throttled for \(policy.throttleGrace) and exceeds its allowance"
        } else if unit.report.tokens > 0 {
            why = "its \(unit.report.tokens) background tasks exceed their time"
        } else if unit.report.holdsLocks {
            why = "the unit holds file locks and cannot be suspended"
        } else {
            why = "the unit is in the background and cannot be suspended"
        }
        // The unit knew that its time was over (T33), so there is no further notice.
        let isOverdue = unit.report.tokens > 0 && unit.report.state == .leaving
        end(choice, &pass, "\(why); \(pass.shortage)", atOnce: isOverdue)
        return true
    }

    /// Returns true if the only background units left are within their grace time. The grace time is then cut short
    /// before any foreground unit is touched.
    private func isOnlyProtected(_ pass: DecisionPass) -> Bool {
        !pass.units.contains {
            !$0.isInFront && $0.canEnd(at: pass.at) && !ThrottlePlan.isProtected($0, at: pass.at, policy)
        }
    }

    /// Returns true if a background unit's time to leave is over and the unit can't be frozen.
    private func isDone(_ unit: UnitSnapshot, at now: Duration) -> Bool {
        guard !unit.isInFront, unit.isFree, unit.canEnd(at: now) else { return false }
        if unit.report.state == .leaving {
            return now >= unit.leaveEnd(policy) && (unit.report.tokens > 0 || !unit.canSuspend(at: now))
        }
        // The unit was told to leave before, and the freeze or the notice failed. Live background tasks still keep
        // their time.
        guard unit.runs, unit.memory.wokenAt == nil else { return false }
        guard unit.memory.hasFailed(.suspend, at: now) || unit.memory.hasFailed(.background, at: now) else {
            return false
        }
        return unit.report.tokens == 0 || now >= unit.leaveEnd(policy)
    }

    /// Ends the least important foreground unit. The most important one is never ended for the sake of others. The only
    /// exception: no other unit is left, and this unit causes the shortage.
    private mutating func endForeground(_ pass: inout DecisionPass) {
        let now = pass.at
        guard let since = criticalSince else { return }
        guard now - since >= policy.foregroundPatience else {
            return pass.remind(at: since + policy.foregroundPatience)
        }
        let isEligible = { (unit: UnitSnapshot) in
            unit.isInFront && unit.isFree && unit.isReachable && unit.canEnd(at: now)
        }
        guard let choice = VictimOrder.running(pass.units, where: isEligible) else { return }
        let unit = pass.units[choice]
        let living = pass.units.reduce(0) { $0 + ($1.canEnd || $1.report.state == .ending ? 1 : 0) }
        let isLast = !pass.units.contains {
            $0.name != unit.name && $0.isInFront && $0.isReachable && $0.importance >= unit.importance
        }
        if isLast, living > 1 || unit.report.charge < pass.needed {
            return pass.spare(choice, "no other unit is more important")
        }
        end(choice, &pass, "no other memory can be freed, and no foreground unit is less important; \(pass.shortage)")
    }

    // MARK: - Steps

    /// Ends a unit in the way that suits its state. Never sends SIGTERM to a frozen unit: the signal would wait for the
    /// thaw (K33).
    mutating func end(_ index: Int, _ pass: inout DecisionPass, _ reason: String, atOnce: Bool = false) {
        let unit = pass.units[index], now = pass.at
        pass.units[index].memory.footprint = max(unit.memory.footprint ?? .zero, unit.report.charge)
        pass.units[index].memory.wokenAt = nil
        let isSuspended = unit.report.state == .suspended || unit.report.state == .suspending
        if atOnce || unit.memory.hasFailed(.ask, at: now) { return step(.end(.kill), on: index, &pass, reason) }
        if isSuspended, unit.report.isSaved {
            return step(.end(.killSuspended), on: index, &pass, "\(reason); its state is saved")
        }
        if isSuspended {
            pass.decide(
                .resume(.ending), of: index,
                "its state is not saved, so the unit is asked to end and must run to receive the request")
        }
        step(.end(.ask(grace: unit.grace(policy, at: now))), on: index, &pass, reason)
    }

    /// Records a decision and starts to wait for its relief.
    mutating func step(_ action: UnitAction, on index: Int, _ pass: inout DecisionPass, _ reason: String) {
        pass.decide(action, of: index, reason)
        let unit = pass.units[index]
        guard let until = unit.memory.pending?.until else { return }
        wait = ReliefWait(unit: unit.name, action: action, at: pass.at, charge: unit.report.charge, until: until)
    }
}
