import Plimsoll

/// The return of units once there is room.
extension SupervisorEngine {
    /// Removes throttles. Then lets units that fit return, one at a time, the most important first.
    mutating func fillRoom(_ pass: inout DecisionPass) {
        guard let calmSince else { return }
        let now = pass.at
        guard now - calmSince >= policy.roomHold else { return pass.remind(at: calmSince + policy.roomHold) }
        for index in pass.units.indices where pass.units[index].report.isThrottled && pass.units[index].isFree {
            if pass.units[index].report.state == .stopped || pass.units[index].memory.hasFailed(.throttle, at: now) {
                continue
            }
            pass.decide(.throttle(false), of: index, "memory has not been short for \(policy.roomHold)")
        }
        let running = Set(pass.units.lazy.filter(\.runs).map(\.name)), known = Set(pass.units.lazy.map(\.name))
        let choice = VictimOrder.returning(pass.units, by: Self.size) { unit in
            guard unit.isFree, mayReturn(unit, at: now),
                pass.fleet.room.map({ need(unit, after: calm(unit, since: calmSince, now)) <= $0 }) ?? true
            else {
                return false
            }
            return unit.report.state != .stopped
                || unit.report.dependencies.allSatisfy { running.contains($0) || !known.contains($0) }
        }
        for unit in pass.units where mayStart(unit) {
            if let ended = unit.report.lastEnded { pass.remind(at: ended + policy.relaunchGap) }
        }
        guard let choice else { return remindOfRoom(&pass, calmSince) }
        let unit = pass.units[choice]
        guard mayReturnNow(unit, &pass) else { return }
        lastReturn = now
        let room = pass.fleet.room.map { "\($0)" } ?? "memory",
            most = need(unit, after: .zero),
            reason = "\(room) has been free for \(policy.roomHold), and the unit needs \(most) at most"
        pass.decide(unit.report.state == .stopped ? .start : .resume(.room), of: choice, reason)
        // Re-evaluate for the next unit.
        pass.remind(at: now + policy.thawSpacing)
    }

    private func mayReturn(_ unit: UnitSnapshot, at now: Duration) -> Bool {
        switch unit.report.state {
        case .suspended:
            // A foreground unit that another party froze stays frozen.
            (unit.report.role != .foreground || unit.memory.footprint != nil)
                && !unit.memory.hasFailed(.resume, at: now)
        case .stopped:
            mayStart(unit) && !unit.memory.hasFailed(.start, at: now)
                && (unit.report.lastEnded.map { now - $0 >= policy.relaunchGap } ?? true)
        default: false
        }
    }

    /// Returns true if the unit starts once there is room. A unit that ended by itself starts after a pause instead.
    private func mayStart(_ unit: UnitSnapshot) -> Bool {
        unit.report.state == .stopped && unit.report.restart == .always && !unit.report.isRestarting
    }

    /// Spaces returns apart: a simultaneous return would hit clients and databases with a storm of connections (T29).
    private func mayReturnNow(_ unit: UnitSnapshot, _ pass: inout DecisionPass) -> Bool {
        guard let lastReturn else { return true }
        let next = lastReturn + policy.thawSpacing + jitter(unit.name)
        if pass.at < next { pass.remind(at: next) }
        return pass.at >= next
    }

    /// Extra memory that must be free for the unit to return: at first previous footprint minus current charge. A frozen
    /// unit is already charged, except for the memory reclaimed meanwhile.
    ///
    /// Every five minutes of calm halve that memory. The unit may never touch the reclaimed pages again, and would
    /// otherwise stay frozen for ever in a fleet that uses most of the memory.
    private func need(_ unit: UnitSnapshot, after calm: Duration) -> ByteCount {
        let whole = Self.size(unit) - unit.report.charge
        return ByteCount(whole.bytes >> min(Int(calm / Self.calmToHalve), 62))
    }

    private static let calmToHalve = Duration.seconds(300)

    /// Time for which the unit has waited while memory was not short.
    private func calm(_ unit: UnitSnapshot, since calmSince: Duration, _ now: Duration) -> Duration {
        now - min(now, max(calmSince, unit.report.since))
    }

    /// Evaluates again when less memory needs to be free.
    private func remindOfRoom(_ pass: inout DecisionPass, _ calmSince: Duration) {
        for unit in pass.units where unit.isFree && mayReturn(unit, at: pass.at) {
            let calm = calm(unit, since: calmSince, pass.at)
            pass.remind(at: pass.at - calm + Self.calmToHalve * ((calm / Self.calmToHalve).rounded(.down) + 1))
        }
    }

    private static func size(_ unit: UnitSnapshot) -> ByteCount {
        max(unit.report.charge, unit.memory.footprint ?? .zero)
    }

    /// Jitter of up to half the spacing, constant for a given name (FNV-1a). The last letters of a name hardly reach the
    /// upper bits of that hash, so the hash is multiplied by 2^64 over the golden ratio (Fibonacci hashing).
    private func jitter(_ name: String) -> Duration {
        let hash = FNV1a.hash(name.utf8) &* 0x9E37_79B9_7F4A_7C15
        return policy.thawSpacing * (Double(hash >> 40) / Double(1 << 25))
    }

    // MARK: - Keep-alive

    /// Freezes units again once their keep-alive budget is over. These units know that they are in the background, so
    /// they get no notice and no time to leave.
    mutating func finishWakes(_ pass: inout DecisionPass) {
        for index in pass.units.indices {
            let unit = pass.units[index]
            guard let woken = unit.memory.wokenAt else { continue }
            // The unit has ended, or was called to the foreground.
            if unit.report.state == .stopped
                || unit.report.role == .foreground && unit.report.backgroundSince == nil
                    && unit.report.state == .running
            {
                pass.units[index].memory.wokenAt = nil
                continue
            }
            guard unit.report.state == .running, unit.isFree else { continue }
            let end = woken + policy.keepAliveBudget
            if pass.at < end {
                pass.remind(at: end)
            } else if unit.report.holdsLocks {
                pass.spare(index, "it holds file locks that others may wait for")
                // From here on, treat the unit as any running background unit.
                if pass.level == .critical { pass.units[index].memory.wokenAt = nil }
            } else if unit.memory.hasFailed(.suspend, at: pass.at) {
                pass.units[index].memory.wokenAt = nil
            } else {
                suspend(index, &pass, "its \(policy.keepAliveBudget) of keep-alive have passed")
            }
        }
    }

    /// Thaws one unit whose keep-alive interval is over, except while memory is critical.
    mutating func wake(_ pass: inout DecisionPass) {
        guard pass.level != .critical else { return }
        for index in pass.units.indices {
            let unit = pass.units[index]
            guard unit.report.state == .suspended, unit.isFree, let asked = unit.report.keepAlive,
                !unit.memory.hasFailed(.resume, at: pass.at)
            else {
                continue
            }
            let interval = max(asked, policy.keepAliveInterval),
                end = (unit.report.lastWoken ?? unit.report.since) + interval
            pass.remind(at: end)
            guard pass.at >= end, mayReturnNow(unit, &pass) else { continue }
            lastReturn = pass.at
            pass.units[index].memory.wokenAt = pass.at
            pass.decide(.resume(.keepAlive), of: index, "the unit runs for keep-alive every \(interval)")
        }
    }
}
