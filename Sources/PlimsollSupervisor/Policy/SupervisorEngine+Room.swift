import Plimsoll

/// The return of units once there is room.
extension SupervisorEngine {
    /// Removes throttles. Then lets units that fit return, one at a time, the most important first.
    mutating func fillRoom(_ look: inout Look) {
        guard let calmSince else { return }
        let now = look.at
        guard now - calmSince >= policy.roomHold else { return look.remind(at: calmSince + policy.roomHold) }
        for index in look.units.indices where look.units[index].report.isThrottled && look.units[index].isFree {
            if look.units[index].report.state == .stopped || look.units[index].memory.hasFailed(.throttle, at: now) {
                continue
            }
            look.decide(.throttle(false), of: index, "memory has not been short for \(policy.roomHold)")
        }
        let running = Set(look.units.lazy.filter(\.runs).map(\.name)), known = Set(look.units.lazy.map(\.name))
        let choice = VictimOrder.returning(look.units, by: Self.size) { unit in
            guard unit.isFree, mayReturn(unit, at: now), look.fleet.room.map({ Self.need(unit) <= $0 }) ?? true else {
                return false
            }
            return unit.report.state != .stopped
                || unit.report.dependencies.allSatisfy { running.contains($0) || !known.contains($0) }
        }
        for unit in look.units where unit.report.state == .stopped && unit.report.restart == .always {
            if let ended = unit.report.lastEnded { look.remind(at: ended + policy.relaunchGap) }
        }
        guard let choice else { return }
        let unit = look.units[choice]
        guard mayReturnNow(unit, &look) else { return }
        lastReturn = now
        look.units[choice].memory.footprint = nil
        let room = look.fleet.room.map { "\($0) of room" } ?? "room",
            reason = "there has been \(room) for \(policy.roomHold), it needs \(Self.need(unit))"
        look.decide(unit.report.state == .stopped ? .start : .resume(.room), of: choice, reason)
        // Re-evaluate for the next unit.
        look.remind(at: now + policy.thawSpacing)
    }

    private func mayReturn(_ unit: Candidate, at now: Duration) -> Bool {
        switch unit.report.state {
        case .suspended:
            // A foreground unit is frozen only at its own request, and thaws on request.
            (unit.report.role != .foreground || unit.memory.footprint != nil)
                && !unit.memory.hasFailed(.resume, at: now)
        case .stopped:
            unit.report.restart == .always && !unit.memory.hasFailed(.start, at: now)
                && (unit.report.lastEnded.map { now - $0 >= policy.relaunchGap } ?? true)
        default: false
        }
    }

    /// Spaces returns apart: a simultaneous return would hit clients and databases with a storm of connections (T29).
    private func mayReturnNow(_ unit: Candidate, _ look: inout Look) -> Bool {
        guard let lastReturn else { return true }
        let next = lastReturn + policy.thawSpacing + jitter(unit.name)
        if look.at < next { look.remind(at: next) }
        return look.at >= next
    }

    /// Extra memory that the unit needs to resume: previous footprint minus current charge. A frozen unit is already
    /// charged, except for the memory reclaimed meanwhile.
    private static func need(_ unit: Candidate) -> ByteCount { size(unit) - unit.report.charge }

    private static func size(_ unit: Candidate) -> ByteCount { max(unit.report.charge, unit.memory.footprint ?? .zero) }

    /// Jitter of up to half the spacing, constant for a given name (FNV-1a).
    private func jitter(_ name: String) -> Duration {
        let hash = name.utf8.reduce(UInt64(0xcbf2_9ce4_8422_2325)) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
        return policy.thawSpacing * (Double(hash >> 40) / Double(1 << 25))
    }

    // MARK: - Keep-alive

    /// Freezes units again once their keep-alive budget is over. These units know that they are in the background, so
    /// they get no notice and no time to leave.
    mutating func finishWakes(_ look: inout Look) {
        for index in look.units.indices {
            let unit = look.units[index]
            guard let woken = unit.memory.wokenAt else { continue }
            // The unit has ended, or was called to the foreground.
            if unit.report.state == .stopped
                || unit.report.role == .foreground && unit.report.backgroundSince == nil
                    && unit.report.state == .running
            {
                look.units[index].memory.wokenAt = nil
                continue
            }
            guard unit.report.state == .running, unit.isFree else { continue }
            let end = woken + policy.keepAliveBudget
            if look.at < end {
                look.remind(at: end)
            } else if unit.report.holdsLocks {
                look.spare(index, "it holds file locks that others may wait for")
                // From here on, treat the unit as any running background unit.
                if look.level == .critical { look.units[index].memory.wokenAt = nil }
            } else if unit.memory.hasFailed(.suspend, at: look.at) {
                look.units[index].memory.wokenAt = nil
            } else {
                suspend(index, &look, "its \(policy.keepAliveBudget) of keep-alive are over")
            }
        }
    }

    /// Thaws one unit whose keep-alive interval is over, except while memory is critical.
    mutating func wake(_ look: inout Look) {
        guard look.level != .critical else { return }
        for index in look.units.indices {
            let unit = look.units[index]
            guard unit.report.state == .suspended, unit.isFree, let asked = unit.report.keepAlive,
                !unit.memory.hasFailed(.resume, at: look.at)
            else {
                continue
            }
            let interval = max(asked, policy.keepAliveInterval),
                end = (unit.report.lastWoken ?? unit.report.since) + interval
            look.remind(at: end)
            guard look.at >= end, mayReturnNow(unit, &look) else { continue }
            lastReturn = look.at
            look.units[index].memory.wokenAt = look.at
            look.decide(.resume(.keepAlive), of: index, "it is woken every \(interval)")
        }
    }
}
