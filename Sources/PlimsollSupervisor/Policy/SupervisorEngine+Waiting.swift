import Plimsoll

/// Whoever was asked to end has its time, but not at the price of everybody else's memory.
extension SupervisorEngine {
    /// At `critical`, with memory that lasts neither until an asked unit must have ended nor for as long as the next one would be given, and nothing come back
    /// for as long as a kill takes to show (K39): one that would lose nothing is killed now, as if it stood still (C90); another keeps its time (T33), and
    /// whoever is next has its turn beside it.
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
                    "it was asked \(asked) s ago and has nothing to lose, and memory lasts for \(timeLeft.wholeMicroseconds / 1000) ms only")
            } else if !isSafe {
                look.units[index].memory.isGivenUp = true
                if isAwaited { wait = nil }
            }
        }
    }
}
