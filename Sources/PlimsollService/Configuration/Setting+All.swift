import Plimsoll

extension Setting {
    /// All settings.
    static let all: [Setting] = switches + shutdown + handlers + caches + levels + reporting

    private static let switches: [Setting] = [
        boolean("enabled", true, "whether the manager looks and acts at all: the switch to turn everything off with") {
            $0.isEnabled = $1
        },
        boolean("dryRun", false, "whether everything is only decided and reported", isLive: true) {
            $0.policy.isDryRun = $1
        },
    ]

    private static let shutdown: [Setting] = [
        duration(
            "shutdown.budget", "25s", .zero ... .seconds(3600), "0 to 1h",
            "from the first word of a shutdown to its end", isLive: true
        ) {
            $0.shutdownBudget = $1
        },
        duration(
            "shutdown.drainDelay", "0s", .zero ... .seconds(600), "0 to 10m",
            "how long the other services go on after the process said it isn't ready", isLive: true
        ) { $0.drainDelay = $1 },
        share(
            "shutdown.taskShare", "0.5",
            "the share of the budget in which background tasks may come to their own end before they are asked to stop",
            atMost: 0.8, isLive: true
        ) { $0.shutdownTaskShare = $1 },
    ]

    private static let handlers: [Setting] = [
        duration(
            "handler.budget", "5s", .milliseconds(10) ... .seconds(600), "10ms to 10m",
            "what a handler may take before it is named and gone around"
        ) { $0.policy.handlerBudget = $1 },
        duration(
            "background.allowance", "30s", .zero ... .seconds(86400), "0 to 24h",
            "how long background tasks may go on in the background"
        ) { $0.policy.backgroundAllowance = $1 },
        duration("background.grace", "5s", .zero ... .seconds(600), "0 to 10m", "how long they have once that is spent")
        {
            $0.policy.expirationGrace = $1
        },
        number(
            "background.maxTasks", "1048576", 1...16_777_216, "1 to 16777216",
            "more background tasks than this at once are refused"
        ) {
            $0.policy.mostBackgroundTasks = Int($1)
        },
        Setting(
            key: "terminate.after", type: "duration or never", standard: "never", range: "1s to 24h, or never",
            meaning: "after how long a saturation, with purges that bring nothing, the process saves and ends itself",
            isLive: false
        ) { text, settings throws(Refusal) in
            guard text.lowercased() != "never" else { return settings.policy.ladder = settings.policy.ladder.unending }
            guard let patience = Duration(plimsoll: text), (.seconds(1) ... .seconds(86400)).contains(patience) else {
                throw Refusal(allowed: "a duration, 1s to 24h, or never")
            }
            let grace = settings.policy.ladder.ending?.grace ?? .seconds(10)
            settings.policy.ladder = settings.policy.ladder.terminating(after: patience, grace: grace)
        },
        duration("terminate.grace", "10s", .zero ... .seconds(600), "0 to 10m", "what saving before that end may take")
        { settings, grace in
            guard let ending = settings.policy.ladder.ending else { return }
            settings.policy.ladder = settings.policy.ladder.terminating(after: ending.after, grace: grace)
        },
    ]

    private static let caches: [Setting] = [
        Setting(
            key: "caches.limits", type: "sizes by name", standard: "none", range: cacheLimitRange,
            meaning:
                "the most that caches of these names hold; others, and one that is no longer named, keep the limit they have",
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
        share("warning.share", "0.2", "less available than this share of the limit is a warning") {
            $0.policy.thresholds.warningMargin.share = $1
        },
        size("warning.maxMargin", "1GiB", "but never more than this") {
            $0.policy.thresholds.warningMargin.atMost = $1
        },
        share("critical.share", "0.1", "less available than this share of the limit is critical") {
            $0.policy.thresholds.criticalMargin.share = $1
        },
        size("critical.maxMargin", "512MiB", "but never more than this") {
            $0.policy.thresholds.criticalMargin.atMost = $1
        },
        number("recovery.factor", "1.2", 1...10, "1 to 10", "a level falls once its margin is exceeded by this factor")
        {
            $0.policy.thresholds.fallFactor = $1
        },
        duration("recovery.hold", "5s", .zero ... .seconds(600), "0 to 10m", "and has been for this long") {
            $0.policy.thresholds.fallHold = $1
        },
        duration(
            "recovery.burstHold", "400ms", .zero ... .seconds(600), "0 to 10m",
            "or for this long where as much is free again as caches leave"
        ) { $0.policy.thresholds.recoveryHold = $1 },
        duration(
            "announcement.minInterval", "25s", .zero ... .seconds(3600), "0 to 1h",
            "each level is announced at most once in this time"
        ) {
            $0.policy.thresholds.announcementRest = $1
        },
        duration(
            "growth.warningTime", "2s", .zero ... .seconds(600), "0 to 10m",
            "less time than this to the limit at the present growth is a warning"
        ) { $0.policy.thresholds.warningTimeLeft = $1 },
        duration("growth.criticalTime", "250ms", .zero ... .seconds(600), "0 to 10m", "less time than this is critical")
        {
            $0.policy.thresholds.criticalTimeLeft = $1
        },
        share("growth.floor", "0.4", "growth counts only where less than this share of the limit is available") {
            $0.policy.thresholds.growthFloor.share = $1
        },
        size("growth.maxFloor", "2GiB", "and less than this") { $0.policy.thresholds.growthFloor.atMost = $1 },
        duration(
            "burst.halfLife", "1m", .seconds(1) ... .seconds(86400), "1s to 24h",
            "after this long the largest burst of late counts for half"
        ) { $0.policy.thresholds.burstHalfLife = $1 },
        share(
            "burst.maxReserve", "0.5",
            "the most that caches leave free for bursts, as a share of the limit; 0 for nothing"
        ) {
            $0.policy.thresholds.burstReserve = $1
        },
        share("stall.warning", "0.2", "a share of the last ten seconds stalled on memory that is a warning") {
            $0.policy.thresholds.stallWarning = $1
        },
        share("stall.critical", "0.4", "a share that is critical if little is available as well") {
            $0.policy.thresholds.stallCritical = $1
        },
    ]

    private static let adminHostsRange = "`shop.internal, ops.example`: names of hosts without a port; or none"

    private static let reporting: [Setting] = [
        duration("log.minInterval", "1m", .zero ... .seconds(86400), "0 to 24h", "between two warnings in the log") {
            $0.logRest = $1
        },
        duration(
            "metrics.interval", "5s", .zero ... .seconds(3600), "0 for never, to 1h",
            "how often instruments are brought up to date"
        ) {
            $0.metricsInterval = $1
        },
        Setting(
            key: "admin.socket", type: "path, auto or off", standard: "auto",
            range: "an absolute path of at most 107 bytes, auto, or off",
            meaning:
                "where operators ask: auto is `plimsoll.sock` in `$RUNTIME_DIRECTORY`, else `plimsoll-PID.sock` in `$XDG_RUNTIME_DIR`",
            isLive: false
        ) { text, settings throws(Refusal) in
            switch text {
            case "auto": settings.adminSocket = .automatic
            case "off": settings.adminSocket = .off
            case _ where text.hasPrefix("/") && text.utf8.count <= 107: settings.adminSocket = .path(text)
            default: throw Refusal(allowed: "an absolute path of at most 107 bytes, auto, or off")
            }
        },
        boolean("admin.allowsChanges", false, "whether they may purge, rehearse pressure and set limits there") {
            $0.adminAllowsChanges = $1
        },
        Setting(
            key: "admin.hosts", type: "names", standard: "none", range: adminHostsRange,
            meaning: "by which names, besides addresses and `localhost`, the pages of `AdminPages` may be asked for",
            isLive: false
        ) { text, settings throws(Refusal) in
            guard text.lowercased() != "none" else { return settings.adminHosts = [] }
            let names = text.split(separator: ",", omittingEmptySubsequences: false).map { HostRule.name($0.trimmed) }
            guard names.allSatisfy({ $0 != nil }) else { throw Refusal(allowed: adminHostsRange) }
            settings.adminHosts = names.compactMap { $0 }
        },
        boolean("notify", true, "whether the service manager is told how the process is") {
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
