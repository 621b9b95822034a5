public import Plimsoll

/// The parameters of a supervisor's decisions.
public struct SupervisorPolicy: Sendable, Hashable {
    /// Time from the notice to go to the background until the unit is frozen. iOS gives 5 s.
    public var leaveTime = Duration.seconds(5)
    /// Time between notices to different units, so that the release of the first is measured before the second releases
    /// anything (xnu).
    public var noticeSpacing = Duration.milliseconds(250)
    /// Time before the same level is repeated to a unit (xnu: 25 s).
    public var noticeRest = Duration.seconds(25)
    /// Time that a lower level must last before units are notified. The level itself falls only when memory has been
    /// free for a while.
    public var fallHold = Duration.milliseconds(500)

    /// Time for a kill to show in the charge before the next victim is considered. 2 GiB take 0.2 to 0.3 s to be freed
    /// (K39), so this is many times that. The wait ends early once the memory is freed.
    public var coolDown = Duration.seconds(2)
    /// Time limit for other steps, such as the confirmation of a freeze or the end of a reclaim. Later steps count as
    /// failed.
    public var answerTime = Duration.seconds(5)
    /// Time during which a step that failed is not retried on the same unit.
    public var failureRest = Duration.seconds(30)

    /// Time from SIGTERM to SIGKILL.
    public var grace = Duration.seconds(10)
    /// Maximum extension of `grace` for live background tasks.
    public var graceExtension = Duration.seconds(25)
    /// Time that memory must have been critical without interruption before a foreground unit is ended.
    public var foregroundPatience = Duration.seconds(10)
    /// Time that a throttled unit has before its end (C36).
    public var throttleGrace = Duration.seconds(30)

    /// Time that a unit runs on each keep-alive wake (C33; iOS gives 10 s).
    public var keepAliveBudget = Duration.seconds(10)
    /// Minimum time between two keep-alive wakes (C33).
    public var keepAliveInterval = Duration.seconds(600)

    /// A unit that relaunches within this time after its end counts as coming straight back, and ending such a unit
    /// does harm (T33). The supervisor also waits this long before restarting such a unit.
    public var relaunchGap = Duration.seconds(30)
    /// Time that level `normal` must last, with no shortfall, before units are resumed and started.
    public var roomHold = Duration.seconds(10)
    /// Minimum time between two returns (resume or start). Jitter by name adds up to half, so that not all units
    /// reconnect at once (T29).
    public var thawSpacing = Duration.milliseconds(500)
    /// The smallest amount worth reclaiming.
    public var leastReclaim = ByteCount.mebibytes(1)

    /// Division of the memory for caches among units.
    ///
    /// `.byWorth` gives each byte where it saves most load time, by the curves of units whose managers divide by worth
    /// as well (`PressurePolicy.division`). Units without curves are left as they are.
    public var division = PressurePolicy.CacheDivision.proportional

    /// Decide and report without acting: decisions are marked as dry run.
    public var isDryRun = false

    public init() {}

    public static let standard = SupervisorPolicy()
}

// The `policy:` section of a units file.
extension SupervisorPolicy {
    private static let durations: [(name: String, path: any WritableKeyPath<SupervisorPolicy, Duration> & Sendable)] = [
        ("leaveTime", \.leaveTime), ("noticeSpacing", \.noticeSpacing), ("noticeRest", \.noticeRest),
        ("fallHold", \.fallHold),
        ("coolDown", \.coolDown),
        ("answerTime", \.answerTime), ("failureRest", \.failureRest), ("grace", \.grace),
        ("graceExtension", \.graceExtension),
        ("foregroundPatience", \.foregroundPatience), ("throttleGrace", \.throttleGrace),
        ("keepAliveBudget", \.keepAliveBudget),
        ("relaunchGap", \.relaunchGap), ("roomHold", \.roomHold), ("thawSpacing", \.thawSpacing),
    ]

    /// Creates the standard policy with the values under `policy:` of a units file applied.
    ///
    /// - Throws: `SupervisorError` with every unknown key and invalid duration, each with its position.
    public init(_ file: UnitsFile) throws {
        self = .standard
        var problems: [String] = []
        for (name, setting) in file.policy.sorted(by: {
            ($0.value.line, $0.value.column) < ($1.value.line, $1.value.column)
        }) {
            let place = "\(file.name):\(setting.line):\(setting.column): policy: key `\(name)`"
            if name == "division" {
                switch setting.text {
                case "proportional": division = .proportional
                case "worth": division = .byWorth
                default: problems.append("\(place) is \"\(setting.text)\"; allowed are proportional and worth")
                }
                continue
            }
            guard let path = Self.durations.first(where: { $0.name == name })?.path else {
                problems.append(
                    "\(place) is not known; allowed are \((Self.durations.map(\.name) + ["division"]).joined(separator: ", "))"
                )
                continue
            }
            guard let duration = setting.duration, duration <= .seconds(86_400) else {
                problems.append(
                    "\(place) is \"\(setting.text)\"; allowed is a time of at most 24h, such as 250ms, 5s or 10m")
                continue
            }
            self[keyPath: path] = duration
        }
        if !problems.isEmpty { throw SupervisorError(problems.joined(separator: "\n")) }
    }
}
