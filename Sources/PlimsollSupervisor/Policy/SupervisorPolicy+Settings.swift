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

    /// Creates the standard policy with the values of `settings` applied.
    ///
    /// - Throws: `SupervisorError` with every unknown key and invalid duration in `settings`, each with its position.
    public init(_ settings: [String: UnitsFile.Setting], file: String = "UNITS.yaml") throws {
        self = .standard
        var problems: [String] = []
        for (name, setting) in settings.sorted(by: {
            ($0.value.line, $0.value.column) < ($1.value.line, $1.value.column)
        }) {
            let place = "\(file):\(setting.line):\(setting.column): policy: key `\(name)`"
            guard let path = Self.durations.first(where: { $0.name == name })?.path else {
                problems.append(
                    "\(place) is not known; allowed are \(Self.durations.map(\.name).joined(separator: ", "))")
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
