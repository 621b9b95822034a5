import Glibc
import Plimsoll
import PlimsollLinux

// Units end and go.
extension SupervisorLoop {
    /// It is not wanted any more. What ran before goes on, as nobody asked for its end.
    func dismiss(_ run: UnitRun, within grace: Duration) {
        run.isLeaving = true
        run.startAt = nil
        if run.isAlive, run.isOurs { askToEnd(run, grace) } else { forget(run) }
    }

    func stop() {
        guard !isStopping else { return }
        isStopping = true
        postponed = [:]
        if options.leavesUnits { return }
        stopBy = now + options.policy.grace
        for run in runs.values {
            run.successor = nil
            if !run.isAlive || !run.isOurs { dismiss(run, within: .zero) }
        }
        stopTurn = options.policy.grace / StopOrder.turns(living)
        stopNext()
    }

    /// Asks those to end whom nobody needs any more.
    func stopNext() {
        let next = StopOrder.next(living)
        for run in runs.values where !run.isLeaving && next.contains(run.unit.name) { dismiss(run, within: stopTurn) }
    }

    /// What they depend on, by name.
    private var living: [String: [String]] {
        Dictionary(runs.values.lazy.filter(\.isAlive).map { ($0.unit.name, $0.unit.dependencies) }) { first, _ in first
        }
    }

    /// Gone for good, with all that was made for it.
    func forget(_ run: UnitRun) {
        settle(run, failure: "it is no unit any more")
        setFree(run)
        letGo(run)
        // One that runs on keeps the group that it was put into.
        var isGone = true
        if run.isOurs || run.group.isEmpty {
            do { try run.group.remove() } catch {
                report(run.unit, "\(error)")
                isGone = !run.isOurs
            }
        }
        // Last: a supervisor that is killed before has its successor know of the groups that are left.
        if isGone { ProcessNote(directory, run.unit.name).remove() }
        // Once nothing of this one is there any more: both have the same paths.
        if let successor = run.successor { arrivals.append(successor) }
    }

    /// It is none of the units any more; its group, and what runs there, stay as they are.
    func letGo(_ run: UnitRun) {
        unwatch(run)
        if !run.isObserved { warden.forget(run.group) }
        runs[run.id] = nil
        if byName[run.unit.name] === run { byName[run.unit.name] = nil }
    }

    /// Takes back what keeps it from running as it likes.
    func setFree(_ run: UnitRun) {
        guard !run.isObserved else { return }
        try? run.group.thaw()
        // The group outlives its processes: the next would be slow for no reason.
        if run.throttledSince != nil { letLoose(run) }
    }

    func unwatch(_ run: UnitRun) {
        supervisor.queue.unwatch(run.pressure.file)
        closeSockets(of: run)
        if run.group.eventsFile >= 0 { supervisor.queue.unwatch(run.group.eventsFile) }
        for child in run.formers + (run.child.map { [$0] } ?? []) {
            supervisor.queue.unwatch(child.descriptor)
            byProcess[child.pid] = nil
        }
    }

    /// Not even SIGKILL has ended these: they wait for a disk that does not answer.
    func abandon() {
        stopBy = nil
        for run in runs.values {
            report(run.unit, "it could not be ended, and is left as it is")
            settle(run, failure: "it did not end")
            unwatch(run)
        }
        runs = [:]
    }
}
