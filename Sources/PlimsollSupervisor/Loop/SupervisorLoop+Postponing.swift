import Glibc
import Plimsoll

/// A unit that could not be taken up: too few descriptors, a path in use, no room for another group.
struct PostponedUnit {
    let unit: ServiceUnit
    /// A former supervisor has left it, and it is to end.
    let isLeftover: Bool
    var tries = 0
    var due = Duration.zero
    /// What was told of it: the same is not told again.
    var told = ""
}

// What can't be done now may be done later.
extension SupervisorLoop {
    /// How long is waited after so many tries: longer each time.
    static func pause(after tries: Int) -> Duration {
        min(.milliseconds(100) * (1 << min(max(0, tries - 1), 9)), .seconds(30))
    }

    /// Tells why a unit could not be taken up and, if that may change, has it tried again; what depends on it waits meanwhile.
    ///
    /// - Returns: whether it is tried again.
    @discardableResult
    func postpone(_ unit: ServiceUnit, isLeftover: Bool = false, for error: any Error) -> Bool {
        var later = postponed[unit.name] ?? PostponedUnit(unit: unit, isLeftover: isLeftover)
        let line = "\(error)"
        if later.told != line { report(unit, line) }
        guard Self.mayPass(error, unit), !isStopping else {
            postponed[unit.name] = nil
            return false
        }
        later.tries += 1
        (later.told, later.due) = (line, now + Self.pause(after: later.tries))
        postponed[unit.name] = later
        return true
    }

    /// A process that has ended does not come back, and its number may be another's by then (K38).
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

    /// The units file was read anew: what it names is tried at once, and what it does not name no more.
    func forgetPostponed(_ units: [ServiceUnit]) {
        let named = Set(units.map(\.name))
        postponed = postponed.filter { $0.value.isLeftover && !named.contains($0.key) }
    }
}
