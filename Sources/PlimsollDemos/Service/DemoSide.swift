import Glibc
import Plimsoll

/// One of the two services: its group, process, clients and record.
final class DemoSide {
    private(set) var record: DemoRecord
    private let group: LimitedGroup
    private let child: ChildProcess
    private let plan: TrafficPlan
    private let start: Duration
    private var traffic: Traffic?
    private var parts = (fixed: ByteCount.zero, workingSet: ByteCount.zero)
    private static let samplesPerPart = 10
    private var clients: [PlainThread] = []

    init(isProtected: Bool, limit: ByteCount, plan: TrafficPlan, start: Duration) throws {
        record = DemoRecord(isProtected: isProtected)
        self.plan = plan
        self.start = start
        let group = try GroupMaker().make(record.name, limit: limit)
        self.group = group
        let arguments =
            ["_service", "--session-life", "\(plan.sessionLife.inSeconds)"] + (isProtected ? ["--protected"] : [])
        do {
            child = try group.startPart(arguments)
        } catch {
            group.remove()
            throw error
        }
    }

    /// Waits for the service to listen, then starts the clients.
    func startTraffic(within limit: Duration) throws {
        let deadline = SteadyClock.now + limit
        while SteadyClock.now < deadline {
            for event in events() where event.kind == .listening {
                guard let port = event.port else { continue }
                let traffic = Traffic(plan: plan, port: port)
                self.traffic = traffic
                clients = traffic.start()
                return
            }
            if let ending = child.poll() {
                throw Failure.failed("the service \(record.name) Plimsoll ended at once with status \(ending.status)")
            }
            SteadyClock.sleep(.milliseconds(5))
        }
        throw Failure.failed(
            "the service \(record.name) Plimsoll did not start to listen within \(Text.number(limit.inSeconds)) s")
    }

    /// Takes a sample and reads the service's events since the last call. Returns the items for the narrative.
    func poll() -> [Narrative.Item] {
        guard record.fate == .running else { return [] }
        let now = SteadyClock.now - start
        // The group's statistics are a long text, which takes an emulated machine milliseconds to parse.
        if record.samples.count % Self.samplesPerPart == 0 { parts = group.parts }
        record.samples.append(.init(at: now, usage: group.usage, fixed: parts.fixed, workingSet: parts.workingSet))
        noteServed(at: now)
        var items = events().compactMap(take)
        if let ending = child.poll() {
            judge(ending, at: now)
            items.append(.init(at: now, side: record.name, text: record.outcome))
        }
        return items
    }

    /// Ends the clients, and the service if it still runs.
    func end() {
        stopTraffic()
        noteServed(at: SteadyClock.now - start)
        guard record.fate == .running else { return }
        let outage = record.outage(at: SteadyClock.now - start)
        let ending = child.end(within: .seconds(5))
        _ = events().compactMap(take)
        if let outage {
            record.fate = .other(outage)
        } else if ending == .exited(0), group.kills == 0 {
            record.fate = .survived
        } else {
            judge(ending, at: SteadyClock.now - start)
        }
    }

    /// Ends all processes and removes the group.
    func cleanUp() {
        child.end(within: .zero)
        stopTraffic()
        if !group.remove() {
            Output.problem("cannot remove \(group.directories.joined(separator: ", "))")
        }
    }

    private func noteServed(at now: Duration) {
        if let traffic { record.noteServed(traffic.servedCount, at: now) }
    }

    private func stopTraffic() {
        traffic?.stop()
        for client in clients { client.join() }
        clients = []
    }

    private func judge(_ ending: ChildProcess.Ending, at now: Duration) {
        if ending == .signalled(SIGKILL), group.kills > 0 {
            record.fate = .killed(at: now)
        } else {
            record.fate = .other(
                "ended with status \(ending.status), not by the kernel (\(group.kills) OOM kills)")
        }
    }

    private func events() -> [ServiceEvent] {
        (child.output?.lines() ?? []).compactMap { try? JSONLine.decode(ServiceEvent.self, from: $0) }
    }

    private func take(_ event: ServiceEvent) -> Narrative.Item? {
        let at = event.at - start
        switch event.kind {
        case .listening: return nil
        case .level:
            guard let level = event.level.flatMap({ PressureLevel(name: $0) }) else { return nil }
            record.levels.append((at, level))
            return .init(at: at, side: record.name, text: "level \(level)")
        case .purge:
            let purge = DemoRecord.Purge(
                at: at, took: .microseconds(event.tookMicroseconds ?? 0), released: ByteCount(event.releasedBytes ?? 0),
                fall: ByteCount(event.fallBytes ?? 0))
            record.purges.append(purge)
            return .init(at: at, side: record.name, text: "", purge: purge)
        case .drop:
            let drop = DemoRecord.Drop(at: at, taken: ByteCount(event.takenBytes ?? 0))
            record.drops.append(drop)
            return .init(at: at, side: record.name, text: "", drop: drop)
        case .end:
            record.hits = event.hits ?? 0
            record.misses = event.misses ?? 0
            return nil
        }
    }
}
