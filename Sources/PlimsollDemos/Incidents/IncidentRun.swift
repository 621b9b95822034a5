package import Plimsoll
import PlimsollLifecycle
import PlimsollLinux
import PlimsollService
import PlimsollTesting

/// One run of an incident: a model of the group's memory below the library's real parsers, decisions and request
/// shedding.
package struct IncidentRun {
    let incident: Incident
    private(set) var group: IncidentGroup
    package private(set) var steps: [PressureDecisions.Step] = []

    private let kernel: IncidentKernel
    private let source: LinuxPressureSource
    private let shedder = RequestShedder(policy: SheddingPolicy(seed: 1))
    private var decisions = PressureDecisions()
    private var sessions = 0
    /// True while the ladder's rung `quiesce` is in force.
    private var isQuiescing = false
    private var tick = 0

    private static let mib = 1 << 20
    /// Simulated time between two readings.
    static let stride = Duration.milliseconds(100)
    /// Memory of a service without sessions.
    private static let idle = 330 * mib
    /// Memory of a session or of a response under way.
    private static let sessionSize = 256 << 10

    init(_ incident: Incident) {
        self.incident = incident
        let mib = Self.mib
        switch incident {
        case .pageCache, .dentries, .heldDentries:
            group = IncidentGroup(limit: 1024 * mib)
            group.anonymous = 500 * mib
        case .sealed:
            group = IncidentGroup(limit: 512 * mib)
            group.anonymous = Self.idle
        case .lowerFloor:
            group = IncidentGroup(limit: 2048 * mib, parentLimit: 768 * mib)
            (group.anonymous, group.neighbour) = (150 * mib, 200 * mib)
        case .sockets:
            group = IncidentGroup(limit: 512 * mib)
            (group.anonymous, group.cache) = (150 * mib, 100 * mib)
        }
        // Programs and libraries.
        group.file = 24 * mib
        kernel = group.kernel()
        source = LinuxPressureSource(kernel: kernel)
    }

    /// The outcome so far.
    package var outcome: IncidentOutcome {
        IncidentOutcome(
            levels: steps.map(\.assessment.level), survives: !group.isKilled,
            ends: steps.contains { $0.actions.contains(where: \.endsTheProcess) },
            cacheShare: Double(group.cache) / Double(min(group.limit, group.parentLimit)))
    }

    private var ticks: Int { [.pageCache, .dentries].contains(incident) ? 6000 : 1200 }

    /// Advances by a tenth of a second. Returns false at the end.
    mutating func step() -> Bool {
        guard tick < ticks, !group.isKilled else { return false }
        tick += 1
        load()
        group.reclaim()
        group.show(on: kernel)
        guard !group.isKilled, let reading = read() else { return false }
        let step = decisions.decide(reading)
        steps.append(step)
        giveWay(step)
        return true
    }

    private func read() -> PressureReading? {
        guard var reading = try? source.read(at: Self.stride * tick) else { return nil }
        reading.charged = ByteCount(group.cache)
        return reading
    }

    /// Applies the service's load during a tenth of a second.
    private mutating func load() {
        let mib = Self.mib
        switch incident {
        case .pageCache: group.file += 40 * mib
        case .dentries: group.slabFree += 20 * mib
        case .heldDentries:
            if group.slabHeld < 420 * mib { group.slabHeld += mib }
            // Once files are open, the service grows with the admitted requests: no growth from a warning on.
            if tick > 600, steps.last?.assessment.level == .normal { group.anonymous += mib / 4 }
        case .sealed:
            // Nine sessions begin for seven that end, until the service is full; from then on seven for nine. Each is
            // a request.
            for arrival in 0..<16 {
                let begins = arrival < (tick < 300 ? 9 : 7)
                guard shedder.begin(.normal) == nil else { continue }
                shedder.end()
                if begins { sessions += 1 } else if sessions > 0 { sessions -= 1 }
            }
            group.anonymous = Self.idle + sessions * Self.sessionSize
        case .lowerFloor:
            if tick == 600 { group.neighbour += 60 * mib }
        case .sockets:
            // Of forty answers a tenth of a second, each buffered for a slow reader, thirty-six are read in the same
            // time at first, and forty-four from tick 400 on.
            for _ in 0..<40 where shedder.begin(.normal) == nil {
                shedder.end()
                sessions += 1
            }
            sessions -= min(sessions, tick < 400 ? 36 : 44)
            group.sockets = sessions * Self.sessionSize
        }
    }

    /// Applies the manager's decisions: caches grow into the allowed room and release the shortfall, and admission
    /// narrows.
    private mutating func giveWay(_ step: PressureDecisions.Step) {
        if incident == .lowerFloor { group.cache += min(4 * Self.mib, step.assessment.room?.bytes ?? 0) }
        if step.actions.contains(.release) { group.cache -= min(group.cache, step.assessment.shortfall.bytes) }
        if step.assessment.level == .normal {
            isQuiescing = false
        } else if step.actions.contains(.quiesce) {
            isQuiescing = true
        }
        let share: QuiesceExtent.Share =
            switch step.assessment.level {
            case .normal: .whole
            case .warning: isQuiescing ? .least : .half
            case .critical: isQuiescing ? .least : .quarter
            }
        shedder.quiesce(to: .narrowed(to: share))
    }
}

extension PressureAction {
    fileprivate var endsTheProcess: Bool { if case .terminate = self { true } else { false } }
}
