import Plimsoll

/// One setting: the key, the allowed values, and the change to apply.
struct Setting: Sendable {
    /// The reason why a text is not a valid value: the allowed values.
    struct Refusal: Error { var allowed: String }

    /// Key within the scope `plimsoll`.
    let key: String
    /// Type of the value: `boolean`, `duration`, `size`, `share`, `number`, or words.
    let type: String
    /// The default value, as text.
    let standard: String
    /// The allowed values.
    let range: String
    let meaning: String
    /// True if the setting is followed while the process runs.
    let isLive: Bool
    let apply: @Sendable (String, inout ServiceSettings) throws(Refusal) -> Void

    /// The environment variable of the setting, in the form of `EnvironmentVariablesProvider`: `shutdown.drainDelay`
    /// is `PLIMSOLL_SHUTDOWN_DRAIN_DELAY`.
    var variable: String { Self.variable(key) }

    static func variable(_ key: String) -> String {
        var name = "PLIMSOLL_"
        for character in key {
            if character == "." {
                name += "_"
            } else {
                if character.isUppercase { name += "_" }
                name += character.uppercased()
            }
        }
        return name
    }

    /// Former names of keys that were renamed. The former names still work.
    static let formerKeys = [
        "background.maxTasks": "background.most", "warning.maxMargin": "warning.atMost",
        "critical.maxMargin": "critical.atMost",
        "recovery.factor": "fall.factor", "recovery.hold": "fall.hold", "announcement.minInterval": "announcement.rest",
        "log.minInterval": "log.rest",
    ]

    /// The place of a value in the settings.
    typealias Place<Value> = any WritableKeyPath<ServiceSettings, Value> & Sendable

    private static func setting<Value: Sendable & Comparable>(
        _ key: String, _ type: String, _ standard: String, _ allowed: ClosedRange<Value>, _ shown: String,
        _ meaning: String, isLive: Bool = false, read: @escaping @Sendable (String) -> Value?, _ place: Place<Value>
    ) -> Setting {
        Setting(key: key, type: type, standard: standard, range: shown, meaning: meaning, isLive: isLive) {
            text, settings throws(Refusal) in
            guard let value = read(text), allowed.contains(value) else { throw Refusal(allowed: "a \(type), \(shown)") }
            settings[keyPath: place] = value
        }
    }

    static func duration(
        _ key: String, _ standard: String, _ allowed: ClosedRange<Duration>, _ shown: String, _ meaning: String,
        isLive: Bool = false, _ place: Place<Duration>
    ) -> Setting {
        setting(
            key, "duration", standard, allowed, shown, meaning, isLive: isLive, read: { Duration(plimsoll: $0) }, place)
    }

    static func share(
        _ key: String, _ standard: String, _ meaning: String, atMost: Double = 1, isLive: Bool = false,
        _ place: Place<Double>
    ) -> Setting {
        setting(
            key, "share", standard, 0...atMost, "0 to \(atMost == 1 ? "1" : "\(atMost)")", meaning, isLive: isLive,
            read: { Double($0) }, place)
    }

    static func size(_ key: String, _ standard: String, _ meaning: String, _ place: Place<ByteCount>) -> Setting {
        setting(
            key, "size", standard, ByteCount.mebibytes(1)...ByteCount.gibibytes(1 << 20), "1MiB to 1048576GiB", meaning,
            read: { ByteCount($0) }, place)
    }

    static func number(
        _ key: String, _ standard: String, _ allowed: ClosedRange<Double>, _ shown: String, _ meaning: String,
        _ place: Place<Double>
    ) -> Setting {
        setting(key, "number", standard, allowed, shown, meaning, read: { Double($0) }, place)
    }

    static func boolean(
        _ key: String, _ standard: Bool, _ meaning: String, isLive: Bool = false, _ place: Place<Bool>
    ) -> Setting {
        Setting(
            key: key, type: "boolean", standard: "\(standard)", range: "true or false", meaning: meaning, isLive: isLive
        ) {
            text, settings throws(Refusal) in
            guard let value = Bool(plimsoll: text) else {
                throw Refusal(allowed: "true or false (also yes, on, 1; no, off, 0)")
            }
            settings[keyPath: place] = value
        }
    }
}
