import Glibc
import Plimsoll
import PlimsollLinux

// Units come, start, end and go.
extension SupervisorLoop {
    /// These are the units from now on.
    func take(_ units: [ServiceUnit]) {
        let change = UnitsChange(from: runs.values.filter { !$0.isLeaving }.map(\.unit), to: units)
        for unit in change.removed { byName[unit.name].map(dismiss) }
        for unit in change.added { add(unit) }
        for changed in change.inPlace + change.restarting {
            guard let run = byName[changed.to.name] else { continue }
            run.unit = changed.to
            run.keepAlive = changed.to.keepAlive
            shape(run)
        }
        for changed in change.restarting {
            guard let run = byName[changed.to.name] else { continue }
            askToEnd(run, options.policy.grace)
            run.startAt = now
        }
        startWaiting()
    }

    private func add(_ unit: ServiceUnit) {
        do {
            // One of that name may still be on its way out.
            if let old = byName[unit.name] { forget(old) }
            let group: UnitGroup
            if case .group(let path) = unit.origin {
                group = try supervisor.root.adopt(unit.name, at: path)
            } else {
                group = try supervisor.root.make(unit.name)
            }
            let run = UnitRun(id: newID(), unit, group, try PressureSocket(directory: options.directory, unit: unit.name))
            runs[run.id] = run
            byName[unit.name] = run
            shape(run)
            try warden.watch(group)
            supervisor.queue.watch(run.pressure.file, for: .readable, Token.of(run.id, Token.pressure))
            if group.eventsFile >= 0 { supervisor.queue.watch(group.eventsFile, for: .changed, Token.of(run.id, Token.events)) }
            try takeOver(run)
            if !run.isAlive { run.startAt = now }
        } catch {
            report(unit, "\(error)")
        }
    }

    /// What runs already: as its origin says, or left by the supervisor before this one.
    private func takeOver(_ run: UnitRun) throws {
        switch run.unit.origin {
        case .process(let pid):
            run.child = try Child.adopt(pid)
            try run.group.enterTree(pid)
        case .group: break
        case .command:
            guard !run.group.isEmpty else { return }
            run.child = ProcessNote(options.directory, run.unit.name).read().flatMap { try? Child.adopt($0.pid, started: $0.started) }
        }
        try run.group.thaw()
        began(run)
    }

    private func began(_ run: UnitRun) {
        if let child = run.child {
            byProcess[child.pid] = run
            supervisor.queue.watch(child.descriptor, for: .readable, Token.of(run.id, Token.child))
            ProcessNote(options.directory, run.unit.name).write(child)
        }
        run.isEndedByUs = false
        run.lastAlive = now
        run.enter(.running, at: now)
        if let ended = run.lastEnded { run.relaunchGap = now - ended }
        run.weigh()
    }

    /// Limits and shares, where they are for us to set.
    func shape(_ run: UnitRun) {
        var problems: [String] = []
        do {
            problems += try run.group.setLimits(request: run.unit.memoryRequest, limit: run.unit.memoryLimit)
            problems += try run.group.setWeights(for: run.unit.role)
        } catch {
            problems.append("\(error)")
        }
        if !problems.isEmpty { run.status = problems.joined(separator: "; ") }
    }

    // MARK: - Starting

    /// Starts what is due and whose dependencies run.
    func startWaiting() {
        guard !isStopping else { return }
        var hasStarted = true
        while hasStarted {
            hasStarted = false
            for run in runs.values where run.startAt.map({ $0 <= now }) ?? false && run.state == .stopped && canStart(run) {
                start(run)
                hasStarted = hasStarted || run.isAlive
            }
        }
    }

    private func canStart(_ run: UnitRun) -> Bool { run.unit.dependencies.allSatisfy { byName[$0]?.state ?? .running == .running } }

    func start(_ run: UnitRun) {
        guard run.state == .stopped, canStart(run), case .command(let command) = run.unit.origin else { return }
        run.startAt = nil
        var launch = Child.Launch(command)
        launch.directory = run.unit.directory
        launch.environment = Self.ownEnvironment.merging(channel.environment) { $1 }.merging(notices.environment) { $1 }
            .merging(run.pressure.environment) { $1 }.merging(run.unit.environment) { $1 }
        do {
            run.child = try Child.start(launch, in: run.group)
            began(run)
        } catch {
            report(run.unit, "\(error)")
            planRestart(run, isFailure: true)
        }
    }

    /// After it ended by itself: sooner the first time, later each time it does so again.
    func planRestart(_ run: UnitRun, isFailure: Bool) {
        guard !run.isLeaving, !isStopping, run.unit.restart == .always || run.unit.restart == .onFailure && isFailure else { return }
        run.restarts = now - run.since > .seconds(60) ? 0 : run.restarts + 1
        run.startAt = now + min(.milliseconds(100) * (1 << min(run.restarts, 10)), .seconds(30))
    }

    private static let ownEnvironment: [String: String] = {
        var variables: [String: String] = [:]
        var entry = environ
        while let text = entry.pointee.map({ String(cString: $0) }) {
            if let sign = text.firstIndex(of: "=") { variables[String(text[..<sign])] = String(text[text.index(after: sign)...]) }
            entry += 1
        }
        // What our own supervisor told us is not for them.
        for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID"] { variables[name] = nil }
        return variables
    }()

    // MARK: - Ending

    /// It is not wanted any more.
    private func dismiss(_ run: UnitRun) {
        run.isLeaving = true
        run.startAt = nil
        if run.isAlive { askToEnd(run, options.policy.grace) } else { forget(run) }
    }

    func stop() {
        guard !isStopping else { return }
        isStopping = true
        if options.leavesUnits { return }
        stopBy = now + options.policy.grace
        for run in runs.values { if run.isAlive { askToEnd(run, options.policy.grace) } else { forget(run) } }
    }

    /// Gone for good, with all that was made for it.
    func forget(_ run: UnitRun) {
        unwatch(run)
        warden.forget(run.group)
        runs[run.id] = nil
        if byName[run.unit.name] === run { byName[run.unit.name] = nil }
        ProcessNote(options.directory, run.unit.name).remove()
        do { try run.group.remove() } catch { report(run.unit, "\(error)") }
    }

    func unwatch(_ run: UnitRun) {
        supervisor.queue.unwatch(run.pressure.file)
        if run.group.eventsFile >= 0 { supervisor.queue.unwatch(run.group.eventsFile) }
        if let child = run.child {
            supervisor.queue.unwatch(child.descriptor)
            byProcess[child.pid] = nil
        }
    }

    private func report(_ unit: ServiceUnit, _ problem: String) { supervisor.tell("\(unit.name): \(problem)") }
}
