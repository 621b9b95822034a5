import Logging  // of the trait "Service"
import Plimsoll
import PlimsollHeap
import PlimsollLinux
import Synchronization

/// Logs the activity of a manager. A rise of the level is logged at `warning`, a fall at `notice`, and actions at
/// `info` and below. Warnings precede a self-termination of the process, and follow a shutdown that exceeds the
/// budget.
///
/// Metadata keys begin with `plimsoll.`: `level`, `previous`, `evidence`, `event`, `shortfall_bytes`, `usage_bytes`,
/// `limit_bytes`, `action`, `mode`, `outcome`, `asked_bytes`, `released_bytes`, `resident_fall_bytes`, `took`,
/// `budget`, `request`, `held_bytes`, `types`, `heap_bytes`, `named`, `tasks`, `asked`, `given_up`, `stragglers`.
///
/// Durations have three significant digits and a unit: `3.21 ms`.
final class ManagerLog: Sendable {
    private let logger: Logger
    private let rest: Duration
    private let clock: @Sendable () -> Duration
    /// Time of the last warning for each level, and the number of warnings suppressed since.
    private let warned = Mutex<[PressureLevel: (at: Duration, left: Int)]>([:])
    /// The last error from notifying the service manager.
    private let unreported = Mutex("")

    /// Creates a log.
    ///
    /// - Parameters:
    ///   - rest: minimum interval between two warnings of one level; earlier ones are logged at `info`.
    ///   - clock: any clock; only differences count.
    init(_ logger: Logger, rest: Duration, clock: @escaping @Sendable () -> Duration = Timekeeper.running.elapsed) {
        (self.logger, self.rest, self.clock) = (logger, rest, clock)
    }

    /// Logs events of `manager` until the registrations are cancelled.
    func begin(_ manager: ResourceManager) -> [Registration] {
        let dead = manager.capabilities.signals.filter { !$0.isLive }
        logger.info(
            "started watching memory",
            metadata: [
                "plimsoll.support": "\(manager.capabilities.support.rawValue)",
                "plimsoll.dry_run": "\(manager.isDryRun)",
                "plimsoll.dead_signals": "\(dead.map(\.name).joined(separator: ", "))",
            ])
        manager.onReport { [self] in log($0) }
        manager.beforeTermination("log") { [logger] _ in
            let memory = manager.memoryStatus
            logger.warning(
                "started to end the process: memory stayed full and purges freed nothing",
                metadata: [
                    "plimsoll.usage_bytes": "\(memory?.usageBytes ?? 0)",
                    "plimsoll.limit_bytes": "\(memory?.limitBytes ?? 0)",
                ])
        }
        return [manager.observe(from: .normal, "log") { [self] in log($0, manager) }]
    }

    func log(_ event: PressureEvent, _ manager: ResourceManager) {
        let memory = manager.memoryStatus
        var metadata: Logger.Metadata = [
            "plimsoll.level": "\(event.level)", "plimsoll.previous": "\(event.previous)",
            "plimsoll.evidence": "\(event.evidence)",
            "plimsoll.event": "\(event.id)", "plimsoll.shortfall_bytes": "\(event.shortfall)",
        ]
        if let memory {
            metadata["plimsoll.usage_bytes"] = "\(memory.usageBytes)"
            if let limit = memory.limitBytes { metadata["plimsoll.limit_bytes"] = "\(limit)" }
        }
        guard event.level > event.previous else {
            let rest = event.level == .warning && event.previous > event.level ? ", down from \(event.previous)" : ""
            return logger.notice("memory level became \(event.level)\(rest)", metadata: metadata)
        }
        let left = mayWarn(of: event.level)
        if let left, left > 0 { metadata["plimsoll.left_out"] = "\(left)" }
        logger.log(level: left == nil ? .info : .warning, "memory level became \(event.level)", metadata: metadata)
    }

    func log(_ report: ActionReport) {
        let status = ActionStatus(report)
        var metadata: Logger.Metadata = [
            "plimsoll.action": "\(status.action)", "plimsoll.mode": "\(status.mode)",
            "plimsoll.level": "\(status.level)",
            "plimsoll.evidence": "\(status.evidence)", "plimsoll.event": "\(status.eventID)",
            "plimsoll.outcome": "\(printable(status.outcome, atMost: 1000))",
            "plimsoll.origin": "\(status.origin)", "plimsoll.took": "\(report.took.brief)",
        ]
        if report.asked > .zero || report.released > .zero || report.releasedVolatile > .zero {
            metadata["plimsoll.asked_bytes"] = "\(status.askedBytes)"
            metadata["plimsoll.released_bytes"] = "\(status.releasedBytes + status.releasedVolatileBytes)"
            metadata["plimsoll.resident_fall_bytes"] = "\(report.residentFall.bytes)"
        }
        if let request = report.cancelledRequest {
            metadata["plimsoll.request"] = "\(printable(request, atMost: 120))"
            metadata["plimsoll.held_bytes"] = "\(report.cancelledBytes.bytes)"
        }
        logger.log(level: Self.level(of: report), "\(status.action)", metadata: metadata)
    }

    private static func level(of report: ActionReport) -> Logger.Level {
        switch report.action {
        // Actions on idle memory interest only readers who look for them.
        case .makeRoom, .noticeDrops: .debug
        // A client has lost a request.
        case .cancelLargestRequest: report.cancelledRequest == nil ? .info : .warning
        case .warn, .release, .quiesce, .expireBackgroundTasks, .suspend, .terminate: .info
        }
    }

    /// Logs the outcome of a shutdown: a warning if the shutdown exceeded the budget or not everything ended in time.
    func ended(_ report: ShutdownReport?) {
        guard let report else { return }
        let isLate = report.drain + report.expiry > report.budget
        logger.log(
            level: report.stragglers.isEmpty && !isLate ? .info : .warning,
            report.stragglers.isEmpty
                ? isLate
                    ? "stopped watching memory; the shutdown took longer than its budget"
                    : "stopped watching memory"
                : "stopped watching memory; not everything ended in time",
            metadata: [
                "plimsoll.budget": "\(report.budget.brief)", "plimsoll.drain": "\(report.drain.brief)",
                "plimsoll.expiry": "\(report.expiry.brief)",
                "plimsoll.asked": "\(report.asked)", "plimsoll.given_up": "\(report.stragglers.count)",
                "plimsoll.stragglers": "\(Self.list(report.stragglers))",
            ])
    }

    /// Logs that the budget of a shutdown is nearly spent while services still run.
    func overdue(_ budget: Duration, _ manager: ResourceManager) {
        logger.warning(
            "cancelled services that did not end within the shutdown's budget",
            metadata: Self.overdueTasks(budget, manager))
    }

    /// Logs that the budget of a shutdown is spent while the process still runs.
    func outlived(_ budget: Duration, _ manager: ResourceManager) {
        logger.warning(
            "the process outlived the shutdown's budget: a cancelled service did not end",
            metadata: Self.overdueTasks(budget, manager))
    }

    private static func overdueTasks(_ budget: Duration, _ manager: ResourceManager) -> Logger.Metadata {
        let tasks = manager.overdueTasks
        return [
            "plimsoll.budget": "\(budget.brief)", "plimsoll.tasks": "\(list(tasks.asked, of: tasks.count))",
            "plimsoll.asked": "\(tasks.count)",
            "plimsoll.given_up": "\(tasks.givenUp.count)", "plimsoll.stragglers": "\(list(tasks.givenUp))",
        ]
    }

    /// Returns the first names of a list, as there may be a million. A name may come from a user, as that of an upload.
    private static func list(_ names: [String], of count: Int? = nil) -> String {
        let named = names.prefix(32).map { printable($0, atMost: 120) }, left = (count ?? names.count) - named.count
        return named.joined(separator: ", ") + (left > 0 ? " and \(left) more" : "")
    }

    /// Logs that the service manager could not be notified. The same reason is logged only once in a row.
    func cannotNotify(_ error: ServiceManagerError) {
        let isNews = unreported.withLock { exchange(&$0, error.description) != error.description }
        if isNews { cannot("notify the service manager", "\(error)") }
    }

    /// Logs a failure of something besides memory; the service continues without that part.
    func cannot(_ what: String, _ reason: String) {
        logger.info("cannot \(what)", metadata: ["plimsoll.reason": "\(reason)"])
    }

    /// Logs that there is no admin socket, because no path is known or the socket cannot listen there.
    func opensNoAdminSocket(_ error: AdminError) {
        logger.notice("did not open the admin socket", metadata: ["plimsoll.reason": "\(error)"])
    }

    func keepsNoBlackBox(_ error: any Error) {
        logger.notice("did not open the black box", metadata: ["plimsoll.reason": "\(error)"])
    }

    /// Logs that the previous run did not end in good order.
    func foundEnd(_ end: String, _ path: String) {
        logger.warning(
            "the previous run did not end in good order",
            metadata: ["plimsoll.end": "\(end)", "plimsoll.details": "plimsoll autopsy \(path)"])
    }

    /// Logs the largest types of a census.
    func counted(_ census: HeapCensus) {
        let types = census.rows.prefix(8).map { row in
            "\(ByteCount(row.totalBytes)) in \(row.count) of \(printable(row.name, atMost: 120))"
        }
        logger.warning(
            "counted the heap at critical",
            metadata: [
                "plimsoll.types": "\(types.joined(separator: "; "))", "plimsoll.heap_bytes": "\(census.usedBytes)",
                "plimsoll.named": "\(Int((census.coverage * 100).rounded())) %",
                "plimsoll.took": "\(Duration.seconds(census.processorSeconds).brief)",
            ])
    }

    /// Logs that no census was taken because it might take the rest of the memory.
    func leavesOutCensus(_ room: ByteCount, _ headroom: ByteCount) {
        logger.info(
            "left out a census of the heap at critical",
            metadata: ["plimsoll.reason": "\(room) are available, and a census needs \(headroom)"])
    }

    /// Returns the number of suppressed warnings of `level` before this one; `nil` if this warning is suppressed too.
    private func mayWarn(of level: PressureLevel) -> Int? {
        let now = clock()
        return warned.withLock { warned in
            if let last = warned[level], now - last.at < rest {
                warned[level]?.left += 1
                return nil
            }
            defer { warned[level] = (now, 0) }
            return warned[level]?.left ?? 0
        }
    }
}
