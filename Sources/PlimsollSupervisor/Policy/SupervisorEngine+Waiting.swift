import Plimsoll

/// The limit on the time of ending units: their wait must not exhaust the memory of all others.
extension SupervisorEngine {
    /// Gives up on ending units that free memory too slowly. This applies at `critical` when all of the following hold:
    ///
    /// - memory is exhausted before the unit must have ended;
    /// - memory is exhausted within the grace time of the next victim;
    /// - the unit has freed nothing for as long as a kill takes to show (K39).
    ///
    /// A unit with nothing to lose is killed now, like a frozen unit (C90). Any other unit keeps its time (T33), and
    /// the next victim is chosen in parallel.
    mutating func giveUp(_ look: inout Look) {
        guard look.level == .critical, let timeLeft = look.timeLeft else { return }
        let now = look.at
        for index in look.units.indices {
            let unit = look.units[index]
            guard let end = unit.memory.end, !unit.memory.isGivenUp else { continue }
            guard now >= end.since + policy.coolDown else {
                look.remind(at: end.since + policy.coolDown)
                continue
            }
            let due = unit.memory.pending.map { $0.until - policy.coolDown } ?? unit.report.since + policy.grace
            guard timeLeft < policy.grace, now + timeLeft < due else { continue }
            let isAwaited = wait.map { $0.unit == unit.name } ?? true
            let isSafe = unit.report.isSaved && unit.report.tokens == 0 && !unit.memory.hasFailed(.kill, at: now)
            if isSafe, isAwaited {
                let asked = (now - unit.report.since).wholeMicroseconds / 1_000_000
                step(
                    .end(.kill), on: index, &look,
                    "it was asked \(asked) s ago and has nothing to lose, and memory lasts for \(timeLeft.wholeMicroseconds / 1000) ms only"
                )
            } else if !isSafe {
                look.units[index].memory.isGivenUp = true
                if isAwaited { wait = nil }
            }
        }
    }
}
