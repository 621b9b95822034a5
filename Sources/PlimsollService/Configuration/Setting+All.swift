import Plimsoll

extension Setting {
    static let all: [Setting] = switches + shutdown + handlers + requests + caches + levels + reporting

    private static let switches: [Setting] = [
        boolean("enabled", true, "enables the manager; false turns all readings and actions off", \.isEnabled),
        boolean("dryRun", false, "decides and reports without acting", isLive: true, \.policy.isDryRun),
        boolean(
            "strict", false,
            "refuses unknown `PLIMSOLL_…` variables instead of warning; accepts the service links of Kubernetes",
            \.isStrict),
    ]

    private static let shutdown: [Setting] = [
        duration(
            "shutdown.budget", "25s", .zero ... .seconds(3600), "0 to 1h",
            "time from the start of a shutdown to its end", isLive: true, \.shutdownBudget),
        duration(
            "shutdown.drainDelay", "0s", .zero ... .seconds(600), "0 to 10m",
            "time for which the other services run on after the process reported that it is not ready", isLive: true,
            \.drainDelay),
        share(
            "shutdown.taskShare", "0.5",
            "share of the budget in which background tasks may finish before they are asked to stop",
            atMost: 0.8, isLive: true, \.shutdownTaskShare),
    ]

    private static let handlers: [Setting] = [
        duration(
            "handler.budget", "5s", .milliseconds(10) ... .seconds(600), "10ms to 10m",
            "time for a handler; the manager reports a handler that takes longer, and continues without it",
            \.policy.handlerBudget),
        duration(
            "background.allowance", "30s", .zero ... .seconds(86400), "0 to 24h",
            "time for which background tasks may run in the background", \.policy.backgroundAllowance),
        duration(
            "background.grace", "5s", .zero ... .seconds(600), "0 to 10m",
            "time for background tasks to end once their allowance is spent", \.policy.expirationGrace),
        number(
            "background.maxTasks", "1048576", 1...16_777_216, "1 to 16777216",
            "maximum number of background tasks at once; more are refused", \.mostTasks),
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
            let grace = settings.terminationGrace
            settings.policy.ladder = settings.policy.ladder.terminating(after: patience, grace: grace)
        },
        duration(
            "terminate.grace", "10s", .zero ... .seconds(600), "0 to 10m", "time to save state before that end",
            \.terminationGrace),
    ]

    private static let requests: [Setting] = [
        Setting(
            key: "requests.cancelAbove", type: "size or never", standard: "never", range: "4MiB to 1TiB, or never",
            meaning:
                "at level critical, cancels the request that holds most memory if that is more than this; requests need a budget",
            isLive: false
        ) { text, settings throws(Refusal) in
            guard text.lowercased() != "never" else {
                return settings.policy.ladder = settings.policy.ladder.cancellingNoRequest
            }
            guard let least = ByteCount(text), (.mebibytes(4) ... .gibibytes(1024)).contains(least) else {
                throw Refusal(allowed: "a size, 4MiB to 1TiB, or never")
            }
            settings.policy.ladder = settings.policy.ladder.cancellingLargestRequest(above: least)
        }
    ]

    private static let caches: [Setting] = [
        Setting(
            key: "caches.division", type: "words", standard: "worth", range: "proportional or worth",
            meaning:
                "division of memory among caches without a limit: each gives back in proportion, or each byte goes where it saves most load time",
            isLive: false
        ) { text, settings throws(Refusal) in
            switch text.lowercased() {
            case "proportional": settings.policy.division = .proportional
            case "worth": settings.policy.division = .byWorth
            default: throw Refusal(allowed: "proportional or worth")
            }
        },
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
        },
    ]

    private static let allowedCacheLimits = ByteCount.kibibytes(1)...ByteCount.gibibytes(1 << 20)
    private static let cacheLimitRange = "`thumbs=64MiB, pages=2G`: each name once, 1KiB to 1048576GiB; or none"

    private static let levels: [Setting] = [
        share(
            "warning.share", "0.2", "level warning while less than this share of the limit is available",
            \.policy.thresholds.warningMargin.share),
        size("warning.maxMargin", "1GiB", "maximum of that margin", \.policy.thresholds.warningMargin.atMost),
        share(
            "critical.share", "0.1", "level critical while less than this share of the limit is available",
            \.policy.thresholds.criticalMargin.share),
        size("critical.maxMargin", "512MiB", "maximum of that margin", \.policy.thresholds.criticalMargin.atMost),
        number(
            "recovery.factor", "1.2", 1...10, "1 to 10",
            "factor by which available memory must exceed the margin of a level before the level falls",
            \.policy.thresholds.fallFactor),
        duration(
            "recovery.hold", "5s", .zero ... .seconds(600), "0 to 10m", "time for which that must last",
            \.policy.thresholds.fallHold),
        duration(
            "recovery.burstHold", "400ms", .zero ... .seconds(600), "0 to 10m",
            "time for which that must last if as much is free as caches leave free", \.policy.thresholds.recoveryHold),
        duration(
            "announcement.minInterval", "25s", .zero ... .seconds(3600), "0 to 1h",
            "minimum time between two announcements of one level", \.policy.thresholds.announcementRest),
        duration(
            "growth.warningTime", "2s", .zero ... .seconds(600), "0 to 10m",
            "level warning if usage would meet the limit within this time at the present growth",
            \.policy.thresholds.warningTimeLeft),
        duration(
            "growth.criticalTime", "250ms", .zero ... .seconds(600), "0 to 10m",
            "level critical if usage would meet the limit within this time", \.policy.thresholds.criticalTimeLeft),
        share(
            "growth.floor", "0.4", "growth counts only while less than this share of the limit is available",
            \.policy.thresholds.growthFloor.share),
        size(
            "growth.maxFloor", "2GiB", "growth counts only while less than this is available",
            \.policy.thresholds.growthFloor.atMost),
        duration(
            "burst.halfLife", "1m", .seconds(1) ... .seconds(86400), "1s to 24h",
            "time after which the largest recent burst counts for half", \.policy.thresholds.burstHalfLife),
        share(
            "burst.maxReserve", "0.5",
            "maximum that caches leave free for bursts, as a share of the limit; 0 for none",
            \.policy.thresholds.burstReserve),
        share(
            "stall.warning", "0.2", "level warning if tasks stalled on memory for this share of the last ten seconds",
            \.policy.thresholds.stallWarning),
        share(
            "stall.critical", "0.4", "level critical if tasks stalled for this share and little memory is available",
            \.policy.thresholds.stallCritical),
    ]

    private static let adminHostsRange = "`shop.internal, ops.example`: names of hosts without a port; or none"

    private static let reporting: [Setting] = [
        duration(
            "log.minInterval", "1m", .zero ... .seconds(86400), "0 to 24h",
            "minimum time between two warnings in the log", \.logRest),
        duration(
            "metrics.interval", "5s", .zero ... .seconds(3600), "0 for never, to 1h",
            "interval at which metrics are updated", \.metricsInterval),
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
            "allows purges, simulated pressure and changed limits through the admin socket", \.adminAllowsChanges),
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
        Setting(
            key: "blackBox", type: "path, auto or off", standard: "auto", range: "an absolute path, auto, or off",
            meaning:
                "file with the last ten minutes, for `plimsoll autopsy` after the end: auto is `plimsoll.box` in `$RUNTIME_DIRECTORY`",
            isLive: false
        ) { text, settings throws(Refusal) in
            switch text {
            case "auto": settings.blackBox = ServiceSettings.standardBlackBox()
            case "off": settings.blackBox = nil
            case _ where text.hasPrefix("/"): settings.blackBox = text
            default: throw Refusal(allowed: "an absolute path, auto, or off")
            }
        },
        boolean(
            "heap.atCritical", false,
            "counts the heap by type when memory becomes critical, and logs the largest types, as `plimsoll heap` lists them",
            \.countsHeapAtCritical),
        boolean("notify", true, "reports the state of the process to the service manager", \.notifiesServiceManager),
    ]
}

extension ServiceSettings {
    fileprivate var mostTasks: Double {
        get { Double(policy.mostBackgroundTasks) }
        set { policy.mostBackgroundTasks = Int(newValue) }
    }

    /// Time to save state before a policy's end; has no effect without such an end.
    fileprivate var terminationGrace: Duration {
        get { policy.ladder.ending?.grace ?? .seconds(10) }
        set {
            guard let ending = policy.ladder.ending else { return }
            policy.ladder = policy.ladder.terminating(after: ending.after, grace: newValue)
        }
    }
}

extension Substring {
    fileprivate var trimmed: Substring {
        var text = drop { $0 == " " }
        while text.last == " " { text.removeLast() }
        return text
    }
}
