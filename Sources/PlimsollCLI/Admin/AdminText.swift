import Plimsoll
import PlimsollDemos
import PlimsollLifecycle
import PlimsollService

/// Human-readable text of an admin endpoint's answers. Names come from a service, so each is sanitized before output
/// to a terminal.
enum AdminText {
    static func status(_ status: ManagerStatus) -> String {
        var rows = [
            [
                "level",
                printable(status.level) + held(status)
                    + (status.isDryRun ? ", dry run: the policy only decides and reports" : ""),
            ]
        ]
        if let memory = status.memory {
            let limit =
                memory.limitBytes.map { " of \(ByteCount($0)) (\(printable(memory.boundary)))" } ?? ", no limit known"
            rows.append([
                "usage", "\(ByteCount(memory.usageBytes))\(limit), working set \(ByteCount(memory.workingSetBytes))",
            ])
            rows.append([
                "available", memory.availableBytes.map { "\(ByteCount($0)) can still be allocated" } ?? "unknown",
            ])
            if let warning = memory.warningLineBytes, let critical = memory.criticalLineBytes {
                rows.append([
                    "lines",
                    "warning from \(ByteCount(warning)), critical from \(ByteCount(critical)) that cannot be reclaimed",
                ])
            }
            let isHeld = memory.evidence == "none" && status.level != "normal"
            let evidence =
                isHeld
                ? "none in the last reading, which showed \(printable(memory.observed))" : printable(memory.evidence)
            rows.append([
                "evidence", evidence + (memory.shortfallBytes > 0 ? ", \(ByteCount(memory.shortfallBytes)) short" : ""),
            ])
            rows.append([
                "resident",
                "\(ByteCount(memory.residentBytes)), heap caches \(ByteCount(memory.chargedBytes)), volatile \(ByteCount(memory.volatileBytes))",
            ])
            rows.append(["growth", growth(ByteCount(memory.growthBytesPerSecond), memory.timeLeftSeconds)])
            rows.append(["stalled", "\(Text.number(memory.stallShare * 100)) % of 10 s"])
        } else {
            rows.append(["memory", "not read yet: the manager does not run"])
        }
        let sum = status.holders.reduce(ByteCount.zero) { $0 + ByteCount($1.heldBytes) }
        let silent = status.holders.compactMap { holder in
            holder.unansweredSeconds.map { "; \(printable(holder.name)) has not answered for \(age($0))" }
        }
        rows.append(["caches", "\(status.holders.count) hold \(sum)" + silent.joined()])
        rows.append(["tasks", "\(status.tasks.running) running, \(status.tasks.expiring) asked to end"])
        if let requests = status.requests,
            requests.running > 0 || requests.cancelledOverLimit > 0 || requests.cancelledForPressure > 0
        {
            rows.append(["requests", Self.requests(requests)])
        }
        let life = status.lifecycle
        rows.append([
            "state",
            "\(printable(life.state)), \(life.isReady ? "ready" : "not ready" + (life.reason.map { ": \(printable($0))" } ?? ""))",
        ])
        rows += status.admissions.map { ["admission", Self.admission($0)] }
        let releases = status.counts.releases
        rows.append([
            "releases",
            "\(releases.count), \(ByteCount(releases.releasedBytes) + ByteCount(releases.releasedVolatileBytes)) released, the kernel reclaimed \(ByteCount(releases.takenBytes))",
        ])
        if let last = status.actions.last { rows.append(["last", action(last, at: status.atSeconds)]) }
        return rows.map { Text.left($0[0], 11) + $0[1] }.joined(separator: "\n")
    }

    static func caches(_ holders: [HolderStatus]) -> String {
        guard !holders.isEmpty else { return "no purgeable is registered" }
        let rows = holders.map { holder -> [String] in
            let silence = holder.unansweredSeconds.map { ", no answer for \(age($0))" } ?? ""
            let name = printable((holder.group.isEmpty ? "" : holder.group + "/") + holder.name) + silence
            let cost = printable(holder.rebuildCost) + (holder.releasesUnderPressure ? "" : ", kept")
            let entries: String = holder.cache.map { "\($0.count)" } ?? "-"
            return [
                name, size(holder.heldBytes), size(holder.limitBytes), size(holder.volatileBytes), entries,
                holder.cache.map { ratio($0) } ?? "-",
                cost,
            ]
        }
        let table = Text.table(
            ["name", "held", "limit", "volatile", "entries", "hits", "rebuild cost"], rows, numeric: true)
        let worth = holders.compactMap { holder in holder.worth.map { (name: printable(holder.name), worth: $0) } }
        guard !worth.isEmpty else { return table }
        let shares = worth.map { name, worth in
            [
                name, size(worth.shareBytes), size(worth.targetBytes), rate(worth.requestsPerSecond),
                duration(worth.loadSeconds), saved(worth.more), saved(worth.less),
            ]
        }
        let curves = worth.map { name, worth in
            [name, curve(worth), size(worth.curve.last?.bytes)]
        }
        return [
            table, "Shares of memory, and the load time a minute that another share saves:",
            Text.table(
                ["name", "share", "best", "requests", "load", "64 MiB more", "64 MiB less"], shares, numeric: true),
            "Misses from no memory to the size at the right; | is the share:",
            Text.table(["name", "miss ratio", "size"], curves, numeric: false),
        ].joined(separator: "\n\n")
    }

    private static func rate(_ perSecond: Double) -> String {
        Text.number(perSecond, decimals: abs(perSecond) < 100 ? 1 : 0) + "/s"
    }

    private static func saved(_ change: WorthStatus.Change) -> String {
        let seconds = change.savedLoadSecondsPerMinute
        return seconds == 0 ? "0 s" : (seconds > 0 ? "+" : "-") + duration(abs(seconds))
    }

    /// Draws miss ratios from 0 bytes to the largest size in columns of eight heights, with a bar at the share.
    static func curve(_ worth: WorthStatus, columns: Int = 32) -> String {
        guard let largest = worth.curve.last?.bytes, largest > 0 else { return "" }
        let heights = Array("▁▂▃▄▅▆▇█")
        var points = worth.curve.map { (bytes: Double($0.bytes), ratio: $0.missRatio) }
        points.insert((0, 1), at: 0)
        let share = Int(Double(columns) * min(1, max(0, Double(worth.shareBytes) / Double(largest))))
        return (0..<columns).reduce(into: "") { text, column in
            let at = (Double(column) + 0.5) / Double(columns) * Double(largest)
            let after = points.firstIndex { $0.bytes >= at } ?? points.count - 1, before = max(0, after - 1)
            let width = points[after].bytes - points[before].bytes
            let part = width > 0 ? (at - points[before].bytes) / width : 0
            let ratio = points[before].ratio + (points[after].ratio - points[before].ratio) * part
            // The numbers come from another process.
            let height = ratio.isFinite ? Int(min(1, max(0, ratio)) * 7.99) : 0
            if column == min(share, columns - 1) { text += "|" }
            text.append(heights[height])
        }
    }

    static func tasks(_ tasks: TasksStatus) -> String {
        var lines = [
            "\(tasks.running) running, \(tasks.expiring) asked to end; so far \(tasks.ended) ended, \(tasks.expired) on request, \(tasks.givenUp) given up, \(tasks.leaked) leaked, \(tasks.refused) refused"
        ]
        if let left = tasks.allowanceLeftSeconds { lines.append("in the background, for \(Text.number(left)) s more") }
        if !tasks.oldest.isEmpty {
            let rows = tasks.oldest.map {
                [
                    printable($0.name), age($0.age.inSeconds), progress($0), $0.isExpiring ? "ending" : "",
                    printable($0.origin),
                ]
            }
            lines += ["", Text.table(["name", "age", "progress", "", "begun at"], rows)]
        }
        return lines.joined(separator: "\n")
    }

    static func purge(_ report: ActionStatus) -> String {
        var text = "released \(ByteCount(report.releasedBytes) + ByteCount(report.releasedVolatileBytes))"
        if report.releasedVolatileBytes > 0 { text += ", \(ByteCount(report.releasedVolatileBytes)) of it volatile" }
        text +=
            "; resident \(ByteCount(report.residentBeforeBytes)) -> \(ByteCount(report.residentAfterBytes)), \(duration(report.tookSeconds))"
        return report.outcome == "done" ? text : text + "; \(printable(report.outcome))"
    }

    // MARK: Parts

    /// Returns `, held until 4.2 s from now, because of: growth`; empty if the last reading supports the level.
    static func held(_ status: ManagerStatus) -> String {
        guard let memory = status.memory, let left = memory.heldSeconds(at: status.atSeconds) else { return "" }
        let why = memory.heldFor.map { ", because of: \(printable($0))" } ?? ""
        return (left > 0 ? ", held until \(duration(left)) from now" : ", held until the next reading") + why
    }

    /// Returns `http: 3 of 8 run, 0 wait, 12 refused (10 sheddable, 2 normal)`.
    static func admission(_ admission: AdmissionStatus) -> String {
        let limit = admission.limit < .max ? " of \(admission.limit)" : ""
        let text =
            "\(printable(admission.name)): \(admission.running)\(limit) run, \(admission.waiting) wait, \(admission.refused) refused"
        let shed = RequestPriority.allCases.map {
            (priority: "\($0)", count: admission.requests?.refused("\($0)") ?? 0)
        }.filter { $0.count > 0 }
        let rate =
            admission.refusedPerSecond.map { "; memory is short, and \(Text.number($0)) are refused a second" } ?? ""
        return text + (shed.isEmpty ? "" : " (\(shed.map { "\($0.count) \($0.priority)" }.joined(separator: ", ")))")
            + rate
    }

    /// Returns `12 hold 84 MiB, most POST /import with 31 MiB; 2 cancelled above their limits, 1 for pressure`.
    static func requests(_ requests: RequestsStatus) -> String {
        var text = "\(requests.running) hold \(ByteCount(requests.heldBytes))"
        if let most = requests.largest.first {
            text += ", most \(printable(most.name, atMost: 60)) with \(ByteCount(most.heldBytes))"
        }
        if !requests.isMetered { text += ", charged bytes only: the allocator does not count" }
        return text
            + "; \(requests.cancelledOverLimit) cancelled above their limits, \(requests.cancelledForPressure) for pressure"
    }

    /// Returns `3 MiB/s: at this rate usage meets the limit in 32 s`.
    static func growth(_ growth: ByteCount, _ secondsLeft: Double?) -> String {
        "\(growth)/s" + (secondsLeft.map { ": at this rate usage meets the limit in \(duration($0))" } ?? "")
    }

    /// Formats a duration with three significant digits. The number may come from another process, so any value is
    /// possible.
    static func duration(_ seconds: Double) -> String {
        seconds.isFinite && abs(seconds) < 1e9 ? Duration.seconds(seconds).brief : "?"
    }

    private static func size(_ bytes: Int?) -> String { bytes.map { ByteCount($0).description } ?? "-" }

    /// Returns `3.2 s ago  release (headroom): 41 MiB in 3 ms`.
    static func action(_ action: ActionStatus, at now: Double) -> String {
        let why = action.origin == "pressure" ? action.evidence : action.origin
        var text = "\(age(max(0, now - action.beganSeconds))) ago  \(action.action) (\(why))"
        let released = ByteCount(action.releasedBytes) + ByteCount(action.releasedVolatileBytes)
        if released > .zero { text += ": \(released) in \(duration(action.tookSeconds))" }
        if let name = action.cancelledRequest { text += ": \(name) held \(ByteCount(action.cancelledBytes ?? 0))" }
        if action.takenBytes > 0 { text += ", \(ByteCount(action.takenBytes)) reclaimed by the kernel" }
        if action.mode != "live" { text += ", \(action.mode)" }
        return printable(
            action.outcome == "done" || action.outcome == action.mode ? text : text + ", \(action.outcome)")
    }

    static func ratio(_ cache: CacheStatistics) -> String {
        cache.hits == 0 && cache.misses == 0 ? "-" : "\(Text.number(cache.hitRatio * 100)) %"
    }

    static func progress(_ task: BackgroundTaskStatus) -> String {
        task.progress.map { "\($0.completed) of \($0.total)" } ?? "-"
    }

    /// Returns `4.2 s`, `3 min`, `2 h`.
    static func age(_ seconds: Double) -> String {
        guard seconds.isFinite, seconds < 1e9 else { return "?" }
        return seconds < 100
            ? "\(Text.number(seconds)) s" : seconds < 5400 ? "\(Int(seconds / 60)) min" : "\(Int(seconds / 3600)) h"
    }
}
