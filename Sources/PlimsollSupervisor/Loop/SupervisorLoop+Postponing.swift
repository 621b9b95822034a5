import Glibc
import Plimsoll

/// A unit whose setup failed for now: too few descriptors, a path in use, no capacity for another group.
struct PostponedUnit {
    let unit: ServiceUnit
    /// True if a former supervisor left the unit, and the unit is to end.
    let isLeftover: Bool
    var tries = 0
    var due = Duration.zero
    /// The last message about the unit; the same message is not repeated.
    var notified = ""
}

// Retries of operations that failed for now.
extension SupervisorLoop {
    /// Returns the exponential back-off after the given number of tries.
    static func pause(after tries: Int) -> Duration {
        min(.milliseconds(100) * (1 << min(max(0, tries - 1), 9)), .seconds(30))
    }

    /// Reports a failed setup and schedules a retry if the failure may pass. Dependent units wait meanwhile.
    ///
    /// - Returns: true if a retry is scheduled.
    @discardableResult
    func postpone(_ unit: ServiceUnit, isLeftover: Bool = false, for error: any Error) -> Bool {
        var later = postponed[unit.name] ?? PostponedUnit(unit: unit, isLeftover: isLeftover)
        let line = "\(error)"
        if later.notified != line { report(unit, line) }
        guard Self.mayPass(error, unit), !isStopping else {
            postponed[unit.name] = nil
            return false
        }
        later.tries += 1
        (later.notified, later.due) = (line, now + Self.pause(after: later.tries))
        postponed[unit.name] = later
        return true
    }

    /// An ended process does not return, and its number may be reused by then (K38).
    private static func mayPass(_ error: any Error, _ unit: ServiceUnit) -> Bool {
        guard case .process = unit.origin else { return true }
        switch error {
        case let error as ChildError: return error.number != ESRCH && error.number != EINVAL
        case let error as GroupError:
            if case .kernel(let number) = error.reason { return number != ESRCH } else { return false }
        default: return true
        }
    }

    func tryPostponed() {
        guard !isStopping else { return }
        for later in postponed.values where later.due <= now {
            if later.isLeftover { endLeftover(later.unit) } else { add(later.unit) }
        }
    }

    /// Applies a new units file. Units in the file are tried at once; others are not retried.
    func forgetPostponed(_ units: [ServiceUnit]) {
        let named = Set(units.map(\.name)), dropped = postponed.values.filter { !named.contains($0.unit.name) }
        postponed = postponed.filter { $0.value.isLeftover && !named.contains($0.key) }
        // A program that a former supervisor started may still run there: the takeover has failed so far.
        for later in dropped where !later.isLeftover && !isDryRun {
            endLeftover(ServiceUnit(name: later.unit.name, origin: .command([])))
        }
    }
}
