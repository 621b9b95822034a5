import Plimsoll

extension Setting {
    /// All settings.
    static let all: [Setting] = switches + shutdown + handlers + caches + levels + reporting

    private static let switches: [Setting] = [
        boolean("enabled", true, "enables the manager; false turns all readings and actions off") {
            $0.isEnabled = $1
        },
        boolean("dryRun", false, "decides and reports without acting", isLive: true) {
            $0.policy.isDryRun = $1
        },
        boolean(
            "strict", false,
            "refuses unknown `PLIMSOLL_…` variables instead of warning; accepts the service links of Kubernetes"
        ) { $0.isStrict = $1 },
    ]

    private static let shutdown: [Setting] = [
        duration(
            "shutdown.budget", "25s", .zero ... .seconds(3600), "0 to 1h",
            "time from the start of a shutdown to its end", isLive: true
        ) {
            $0.shutdownBudget = $1
        },
        duration(
            "shutdown.drainDelay", "0s", .zero ... .seconds(600), "0 to 10m",
            "time for which the other services run on after the process reported that it is not ready", isLive: true
        ) { $0.drainDelay = $1 },
        share(
            "shutdown.taskShare", "0.5",
            "share of the budget in which background tasks may finish before they are asked to stop",
            atMost: 0.8, isLive: true
        ) { $0.shutdownTaskShare = $1 },
    ]

    private static let handlers: [Setting] = [
        duration(
            "handler.budget", "5s", .milliseconds(10) ... .seconds(600), "10ms to 10m",
            "time for a handler; the manager reports a handler that takes longer, and continues without it"
        ) { $0.policy.handlerBudget = $1 },
        duration(
            "background.allowance", "30s", .zero ... .seconds(86400), "0 to 24h",
            "time for which background tasks may run in the background"
        ) { $0.policy.backgroundAllowance = $1 },
        duration(
            "background.grace", "5s", .zero ... .seconds(600), "0 to 10m",
            "time for background tasks to end once their allowance is spent"
        ) {
            $0.policy.expirationGrace = $1
        },
        number(
            "background.maxTasks", "1048576", 1...16_777_216, "1 to 16777216",
            "maximum number of background tasks at once; more are refused"
        ) {
            $0.policy.mostBackgroundTasks = Int($1)
        },
        Setting(
            key: "terminate.after", type: "duration or never", standard: "never", range: "1s to 24h, or never",
            meaning:
                "time of saturation, with purges that free nothing, after which the process saves its state and ends",
            isLive: false
        ) { text, settings throws(Refusal) in
            guard text.lowercased() != "never" else { return settings.policy.ladder = settings.policy.ladder.unending }
            guard let patience = Duration(plimsoll: text), (.seconds(1) ... .seconds(86400)).contains(patience) else {
                throw Refusal(allowed: "a duration, 1s to 24h, or never")
            }
            let grace = settings.policy.ladder.ending?.grace ?? .seconds(10)
            settings.policy.ladder = settings.policy.ladder.terminating(after: patience, grace: grace)
        },
        duration("terminate.grace", "10s", .zero ... .seconds(600), "0 to 10m", "time to save state before that end") {
            settings, grace in
            guard let ending = settings.policy.ladder.ending else { return }
            settings.policy.ladder = settings.policy.ladder.terminating(after: ending.after, grace: grace)
        },
    ]

    private static let caches: [Setting] = [
        Setting(
            key: "caches.limits", type: "sizes by name", standard: "none", range: cacheLimitRange,
            meaning:
                "limits of the caches with these names; other caches, and a cache no longer named, keep their limits",
            isLive: true
        ) { text, settings throws(Refusal) in
            guard text.lowercased() != "none" else { return settings.cacheLimits = [:] }
            settings.cacheLimits = [:]
            for part in text.split(separator: ",") {
                // A name may contain any character except these two.
                guard let end = part.firstIndex(of: "="),
                    let limit = ByteCount(String(part[part.index(after: end)...])),
                    allowedCacheLimits.contains(limit),
                    settings.cacheLimits.updateValue(limit, forKey: String(part[..<end].trimmed)) == nil
                else { throw Refusal(allowed: cacheLimitRange) }
            }
        }
    ]

    private static let allowedCacheLimits = ByteCount.kibibytes(1)...ByteCount.gibibytes(1 << 20)
    private static let cacheLimitRange = "`thumbs=64MiB, pages=2G`: each name once, 1KiB to 1048576GiB; or none"

    private static let levels: [Setting] = [
        share("warning.share", "0.2", "level warning while less than this share of the limit is available") {
            $0.policy.thresholds.warningMargin.share = $1
        },
        size("warning.maxMargin", "1GiB", "maximum of that margin") {
            $0.policy.thresholds.warningMargin.atMost = $1
        },
        share("critical.share", "0.1", "level critical while less than this share of the limit is available") {
            $0.policy.thresholds.criticalMargin.share = $1
        },
        size("critical.maxMargin", "512MiB", "maximum of that margin") {
            $0.policy.thresholds.criticalMargin.atMost = $1
        },
        number(
            "recovery.factor", "1.2", 1...10, "1 to 10",
            "factor by which available memory must exceed the margin of a level before the level falls"
        ) {
            $0.policy.thresholds.fallFactor = $1
        },
        duration("recovery.hold", "5s", .zero ... .seconds(600), "0 to 10m", "time for which that must last") {
            $0.policy.thresholds.fallHold = $1
        },
        duration(
            "recovery.burstHold", "400ms", .zero ... .seconds(600), "0 to 10m",
            "time for which that must last if as much is free as caches leave free"
        ) { $0.policy.thresholds.recoveryHold = $1 },
        duration(
            "announcement.minInterval", "25s", .zero ... .seconds(3600), "0 to 1h",
            "minimum time between two announcements of one level"
        ) {
            $0.policy.thresholds.announcementRest = $1
        },
        duration(
            "growth.warningTime", "2s", .zero ... .seconds(600), "0 to 10m",
            "level warning if usage would meet the limit within this time at the present growth"
        ) { $0.policy.thresholds.warningTimeLeft = $1 },
        duration(
            "growth.criticalTime", "250ms", .zero ... .seconds(600), "0 to 10m",
            "level critical if usage would meet the limit within this time"
        ) {
            $0.policy.thresholds.criticalTimeLeft = $1
        },
        share("growth.floor", "0.4", "growth counts only while less than this share of the limit is available") {
            $0.policy.thresholds.growthFloor.share = $1
        },
        size("growth.maxFloor", "2GiB", "growth counts only while less than this is available") {
            $0.policy.thresholds.growthFloor.atMost = $1
        },
        duration(
            "burst.halfLife", "1m", .seconds(1) ... .seconds(86400), "1s to 24h",
            "time after which the largest recent burst counts for half"
        ) { $0.policy.thresholds.burstHalfLife = $1 },
        share(
            "burst.maxReserve", "0.5",
            "maximum that caches leave free for bursts, as a share of the limit; 0 for none"
        ) {
            $0.policy.thresholds.burstReserve = $1
        },
        share("stall.warning", "0.2", "level warning if tasks stalled on memory for this share of the last ten seconds")
        {
            $0.policy.thresholds.stallWarning = $1
        },
        share("stall.critical", "0.4", "level critical if tasks stalled for this share and little memory is available")
        {
            $0.policy.thresholds.stallCritical = $1
        },
    ]

    private static let adminHostsRange = "`shop.internal, ops.example`: names of hosts without a port; or none"

    private static let reporting: [Setting] = [
        duration(
            "log.minInterval", "1m", .zero ... .seconds(86400), "0 to 24h",
            "minimum time between two warnings in the log"
        ) {
            $0.logRest = $1
        },
        duration(
            "metrics.interval", "5s", .zero ... .seconds(3600), "0 for never, to 1h",
            "interval at which metrics are updated"
        ) {
            $0.metricsInterval = $1
        },
        Setting(
            key: "admin.socket", type: "path, auto or off", standard: "auto",
            range: "an absolute path of at most 107 bytes, auto, or off",
            meaning:
                "admin socket for operators: auto is `plimsoll.sock` in `$RUNTIME_DIRECTORY`, else `plimsoll-PID.sock` in `$XDG_RUNTIME_DIR`",
            isLive: false
        ) { text, settings throws(Refusal) in
            switch text {
            case "auto": settings.adminSocket = .automatic
            case "off": settings.adminSocket = .off
            case _ where text.hasPrefix("/") && text.utf8.count <= 107: settings.adminSocket = .path(text)
            default: throw Refusal(allowed: "an absolute path of at most 107 bytes, auto, or off")
            }
        },
        boolean(
            "admin.allowsChanges", false,
            "allows purges, simulated pressure and changed limits through the admin socket"
        ) {
            $0.adminAllowsChanges = $1
        },
        Setting(
            key: "admin.hosts", type: "names", standard: "none", range: adminHostsRange,
            meaning:
                "host names, besides addresses and `localhost`, under which the pages of `AdminPages` may be requested",
            isLive: false
        ) { text, settings throws(Refusal) in
            guard text.lowercased() != "none" else { return settings.adminHosts = [] }
            let names = text.split(separator: ",", omittingEmptySubsequences: false).map { HostRule.name($0.trimmed) }
            guard names.allSatisfy({ $0 != nil }) else { throw Refusal(allowed: adminHostsRange) }
            settings.adminHosts = names.compactMap { $0 }
        },
        boolean("notify", true, "reports the state of the process to the service manager") {
            $0.notifiesServiceManager = $1
        },
    ]
}

extension Substring {
    fileprivate var trimmed: Substring {
        var text = drop { $0 == " " }
        while text.last == " " { text.removeLast() }
        return text
    }
}
