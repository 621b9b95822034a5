import Glibc
import Plimsoll
import PlimsollLinux

// The addition, start, end and removal of units.
extension SupervisorLoop {
    /// Replaces the set of units.
    func take(_ units: [ServiceUnit]) {
        arrivals = []
        forgetPostponed(units)
        for run in runs.values { run.successor = nil }
        let change = UnitsChange(from: runs.values.filter { !$0.isLeaving }.map(\.unit), to: units)
        for unit in change.removed { if let run = byName[unit.name] { dismiss(run, within: options.policy.grace) } }
        for unit in change.added { add(unit) }
        for changed in change.inPlace + change.restarting {
            guard let run = byName[changed.to.name] else { continue }
            // A changed command needs a restart; a changed process or group makes a new unit.
            guard case .command = changed.to.origin, run.isOurs else {
                if changed.to.origin != changed.from.origin {
                    run.successor = changed.to
                    dismiss(run, within: options.policy.grace)
                } else {
                    update(run, changed.to)
                }
                continue
            }
            update(run, changed.to)
        }
        for changed in change.restarting {
            guard let run = byName[changed.to.name], !run.isLeaving, run.isOurs else { continue }
            askToEnd(run, options.policy.grace)
            run.startAt = now
        }
        startWaiting()
    }

    private func update(_ run: UnitRun, _ unit: ServiceUnit) {
        let changesSenders = run.unit.socketOwner != unit.socketOwner || run.unit.notifyAccess != unit.notifyAccess
        // Unless the owner's interval changes, the one granted to the unit stays.
        if run.unit.keepAlive != unit.keepAlive { run.keepAlive = unit.keepAlive }
        run.unit = unit
        if changesSenders { readmit(run) }
        shape(run)
    }

    func add(_ unit: ServiceUnit) {
        // A unit of that name may still be ending.
        if let old = byName[unit.name] {
            if old.isLeaving {
                old.successor = unit
            } else {
                report(unit, "ignored the second unit of that name")
            }
            return
        }
        var made: UnitGroup?, run: UnitRun?
        do {
            if isDryRun, !startsItself(unit) {
                try observe(unit)
            } else {
                if try followsLeftover(unit) { return postponed[unit.name] = nil }
                let group: UnitGroup
                if case .group(let path) = unit.origin {
                    group = try supervisor.root.adopt(unit.name, at: path)
                } else {
                    group = try makeGroup(unit)
                    made = group
                }
                let kept = try keep(unit, group)
                run = kept
                shape(kept)
                try takeOver(kept)
                if kept.isOurs, !kept.isAlive || kept.state == .ending {
                    // A note is needed even while the unit does not run: its group exists.
                    if !kept.isAlive { note(kept) }
                    kept.startAt = now
                }
            }
            postponed[unit.name] = nil
        } catch {
            guard postpone(unit, for: error) else { return }
            if let run { letGo(run) }
            // Nothing remains of the attempt. Processes that run there are found again.
            if let made, made.isEmpty { try? made.remove() }
        }
    }

    /// Makes a group for a unit. An existing group of the same name is reused if a note shows that a supervisor with
    /// this directory made the group. An empty group is made anew. Any other group belongs to another owner.
    private func makeGroup(_ unit: ServiceUnit) throws(GroupError) -> UnitGroup {
        var known = Set(try ProcessNote(directory, unit.name).groups.map(\.identity))
        if let run = byName[unit.name] { known.formUnion(run.group.directories.map(\.identity)) }
        // A unit that ran before keeps the group it was put into when released.
        var process: Int32?
        if case .process(let pid) = unit.origin { process = pid }
        try supervisor.root.clear(unit.name, sparing: known, of: process)
        return try supervisor.root.make(unit.name)
    }

    /// Replaces a group that another party removed. Only a group without processes can be removed.
    private func makeGroupAgain(_ run: UnitRun) throws {
        do throws(GroupError) { try run.group.check(for: .enter) } catch {
            guard error.reason == .replaced else { throw error }
            let group = try makeGroup(run.unit)
            if run.group.eventsFile >= 0, !run.isGroupGone { supervisor.queue.unwatch(run.group.eventsFile) }
            thawWatchdog.forget(run.group)
            run.move(to: group)
            if group.eventsFile >= 0 {
                supervisor.queue.watch(group.eventsFile, for: .changed, Token.of(run.id, Token.events))
            }
            try thawWatchdog.watch(group)
            shape(run)
            note(run)
        }
    }

    func keep(_ unit: ServiceUnit, _ group: UnitGroup, isObserved: Bool = false) throws -> UnitRun {
        let pressure = try PressureSocket(directory: directory, unit: unit.name) { [unowned self] in
            mayReceive($0, $1, of: unit.name)
        }
        let run = UnitRun(id: newID(), unit, group, pressure, isObserved: isObserved)
        // Links that are open belong to a former unit of that name.
        run.messages.forget(upTo: channel.lastID)
        try openSockets(of: run)
        runs[run.id] = run
        byName[unit.name] = run
        // The group is remembered in any case, and the next guard process is informed.
        if !isObserved { do { try thawWatchdog.watch(group) } catch { report(unit, "\(error)") } }
        supervisor.queue.watch(run.pressure.file, for: .readable, Token.of(run.id, Token.pressure))
        if group.eventsFile >= 0 {
            supervisor.queue.watch(group.eventsFile, for: .changed, Token.of(run.id, Token.events))
        }
        return run
    }

    /// - Parameters:
    ///   - isUp: true if the unit counts as started.
    ///   - keepsNote: true if the note for the next supervisor stays as it is.
    func began(_ run: UnitRun, isUp: Bool = true, keepsNote: Bool = false) {
        if let child = run.child {
            byProcess[child.pid] = run
            supervisor.queue.watch(child.descriptor, for: .readable, Token.of(run.id, Token.child))
        }
        run.startedAt = now
        run.isEndedByUs = false
        (run.isUp, run.mayBeUp, run.isMainUnknown) = (isUp, false, run.child == nil)
        run.goOn(at: now)
        if run.isOurs, !keepsNote { note(run) }
        if let ended = run.lastEnded { run.relaunchGap = now - ended }
        run.weigh()
    }

    /// Writes the note for the next supervisor.
    func note(_ run: UnitRun) {
        let note = ProcessNote(directory, run.unit.name)
        // For units that ran before, the note holds only changes to undo: the next supervisor must not end such units.
        run.noteDue = nil
        if !run.isOurs, run.throttle.isEmpty { return note.remove() }
        let isUnknown = run.isOurs && run.child != nil && run.child?.started == nil
        let isStarting = run.unit.notify && !(run.isAlive && run.isUp)
        let problem =
            run.isOurs
            ? note.write(run.child, run.group, run.throttle, isStarting: isStarting)
            : note.write(nil, nil, run.throttle)
        if let problem { report(run.unit, problem) }
        // The next supervisor needs a complete note, so retry.
        if problem != nil || isUnknown { run.noteDue = now + .seconds(1) }
    }

    /// Sets limits and weights, where the supervisor may set them.
    func shape(_ run: UnitRun) {
        guard !run.isObserved else { return }
        do {
            let unit = run.unit, group = run.group
            if case .group = unit.origin {
                // The group of another owner: set only the requested values and leave the rest.
                guard unit.memoryRequest != nil || unit.memoryLimit != nil else { return }
                func present(_ file: String) -> ByteCount? { group.memory?.number(file).map { ByteCount($0) } }
                for problem in try group.setLimits(
                    request: unit.memoryRequest ?? present("memory.low"),
                    limit: unit.memoryLimit ?? present(group.isVersion1 ? "memory.limit_in_bytes" : "memory.max"),
                    high: present("memory.high"))
                { report(unit, problem) }
                return
            }
            // The request protects only pages of units in the foreground.
            let request = run.shares == nil ? unit.memoryRequest : nil
            for problem in try group.setLimits(request: request, limit: unit.memoryLimit) { report(unit, problem) }
            // Weights that can't be set are the same for all units, and are reported in `capabilities`.
            _ = try group.setWeights(for: run.shares ?? unit.role)
        } catch {
            report(run.unit, "\(error)")
        }
    }

    /// Sets the unit's shares by role. A foreground unit in the background has at most the shares of background units
    /// (C37).
    func followState(_ run: UnitRun) {
        if case .group = run.unit.origin { return }
        setShares(of: run, isBehind: run.unit.role == .foreground && run.backgroundSince != nil && run.isAlive)
    }

    /// Gives the unit the shares of background units, or the shares of the unit's own role again.
    func setShares(of run: UnitRun, isBehind: Bool) {
        guard isBehind != (run.shares != nil), !run.isObserved else { return }
        do {
            if isBehind {
                try thawWatchdog.watch(
                    run.group.ownWeights(for: run.unit.role, run.unit.memoryRequest), .shares, of: run.group)
            }
            run.shares = isBehind ? .background : nil
            _ = try run.group.setWeights(for: run.shares ?? run.unit.role)
            try run.group.protect(isBehind ? nil : run.unit.memoryRequest)
            if !isBehind { thawWatchdog.forget(.shares, of: run.group) }
        } catch {
            report(run.unit, "\(error)")
        }
    }

    // MARK: - Starting

    /// Starts units that are due and whose dependencies run.
    func startWaiting() {
        guard !isStopping else { return }
        var hasStarted = true
        while hasStarted {
            hasStarted = false
            for run in runs.values
            where run.startAt.map({ $0 <= now }) ?? false && run.state == .stopped && canStart(run) {
                start(run)
                hasStarted = hasStarted || run.isAlive
            }
        }
    }

    func canStart(_ run: UnitRun) -> Bool {
        run.state == .stopped
            && run.unit.dependencies.allSatisfy { name in
                postponed[name] == nil && !arrivals.contains { $0.name == name }
                    && byName[name]?.state ?? .running == .running
            }
    }

    func start(_ run: UnitRun) {
        guard run.state == .stopped, !run.isLeaving, canStart(run), case .command(let command) = run.unit.origin else {
            return
        }
        run.startAt = nil
        var launch = Child.Launch(command)
        launch.directory = run.unit.directory
        readmit(run)
        launch.environment = Self.ownEnvironment.merging(socketEnvironment(of: run)) { $1 }
            .merging(run.pressure.environment) { $1 }.merging(run.unit.environment) { $1 }
        launch.kept = run.store.kept.map { ($0.name, $0.descriptor.file) }
        do {
            try makeGroupAgain(run)
            run.child = try Child.start(launch, in: run.group)
            began(run, isUp: !run.unit.notify)
        } catch {
            report(run.unit, "\(error)")
            run.startedAt = nil
            planRestart(run, isFailure: true)
        }
    }

    /// Schedules a restart after the unit ended by itself. The delay grows with each repeated failure (back-off).
    func planRestart(_ run: UnitRun, isFailure: Bool) {
        guard !run.isLeaving, !isStopping, run.isOurs,
            run.unit.restart == .always || run.unit.restart == .onFailure && isFailure
        else { return }
        let hasHeld = run.startedAt.map { now - $0 > .seconds(60) } ?? false
        run.restarts = hasHeld ? 1 : run.restarts + 1
        run.startAt = now + Self.pause(after: run.restarts)
    }

    private static let ownEnvironment: [String: String] = {
        var variables: [String: String] = [:]
        var entry = environ
        while let text = entry.pointee.map({ String(cString: $0) }) {
            if let sign = text.firstIndex(of: "=") {
                variables[String(text[..<sign])] = String(text[text.index(after: sign)...])
            }
            entry += 1
        }
        // Variables from our own supervisor are not meant for the units.
        for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"] {
            variables[name] = nil
        }
        return variables
    }()
}
