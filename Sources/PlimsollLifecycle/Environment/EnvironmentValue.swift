public import Plimsoll

/// A present or previous value of something outside the program.
public enum EnvironmentValue: Sendable, Hashable {
    /// No value: no file, no limit.
    case absent
    /// A word: a locale, or any text from the poster.
    case text(String)
    /// Yes or no, for example if protected data can be reached.
    case flag(Bool)
    /// `CLOCK_REALTIME` less `CLOCK_BOOTTIME`. The difference moves only when the clock is set.
    case clock(Duration)
    /// The date of the time zone, in days since 1970-01-01.
    case day(Int)
    /// A time zone.
    case timeZone(TimeZoneVersion)
    /// A version of a file's content.
    case file(FileVersion)
    /// A limit.
    case size(ByteCount)
    /// The names of devices, in order.
    case devices([String])
    /// The power supply.
    case power(PowerState)
}

extension EnvironmentValue {
    /// Clock moves smaller than this do not count as setting the clock. They don't matter to dates, and two clocks
    /// can't be read at once.
    static let clockTolerance = Duration.milliseconds(100)

    /// Returns true if the step from one value to the other is no change.
    package func isSame(as other: EnvironmentValue) -> Bool {
        switch (self, other) {
        case (.clock(let left), .clock(let right)): max(left, right) - min(left, right) < Self.clockTolerance
        case (.file(let left), .file(let right)): left.isSame(as: right)
        default: self == other
        }
    }

    /// Returns this value, with unset parts taken from `older`.
    package func over(_ older: EnvironmentValue?) -> EnvironmentValue {
        guard case .power(let new) = self, case .power(let old) = older else { return self }
        return .power(new.over(old))
    }
}

/// The content of a file at the time of reading, as a hash and a size.
public struct FileVersion: Sendable, Hashable {
    /// FNV-1a of the content, 64 bits; `nil` if the file could not be read.
    public var contentHash: UInt64?
    /// Length in bytes.
    public var size: Int
    /// Time of the last write, since 1970.
    public var modified: Duration

    /// Creates a version with this content hash, size and time.
    public init(contentHash: UInt64?, size: Int, modified: Duration = .zero) {
        self.contentHash = contentHash
        self.size = size
        self.modified = modified
    }

    /// Returns true if the content is the same. Writing the same content again is no change. The time counts only if a
    /// hash is unknown.
    func isSame(as other: FileVersion) -> Bool {
        guard let contentHash, let hash = other.contentHash else { return self == other }
        return contentHash == hash && size == other.size
    }
}

/// A time zone, with the facts that cached formatters and calendars depend on.
public struct TimeZoneVersion: Sendable, Hashable {
    /// The name, such as `Europe/Berlin`: `$TZ`, or the target of the link `/etc/localtime`; `nil` if that is a plain
    /// file.
    public var name: String?
    /// FNV-1a of the zone's rules, 64 bits; `nil` if there is no rules file.
    public var rulesHash: UInt64?
    /// Present distance from UTC, in seconds to the east. Changes with summer time.
    public var secondsFromUTC: Int

    /// Creates a zone of this name and rules.
    public init(name: String?, rulesHash: UInt64? = nil, secondsFromUTC: Int = 0) {
        self.name = name
        self.rulesHash = rulesHash
        self.secondsFromUTC = secondsFromUTC
    }
}

/// The state of the power supply. A `nil` property is unknown or not reported.
public struct PowerState: Sendable, Hashable {
    /// True if the power comes from outside (`online` in `/sys/class/power_supply`), not from a battery.
    public var isOnMains: Bool?
    /// Charge of the emptiest battery in percent, `0...100` (`capacity`).
    public var percent: Int?
    /// A notice that the machine will be taken away, in the words of the sender, such as the cloud provider. Set by a
    /// poster; an empty notice withdraws the previous one.
    public var notice: String?

    /// Creates a state; parts left out are unknown.
    public init(isOnMains: Bool? = nil, percent: Int? = nil, notice: String? = nil) {
        self.isOnMains = isOnMains
        self.percent = percent
        self.notice = notice
    }

    func over(_ older: PowerState) -> PowerState {
        PowerState(
            isOnMains: isOnMains ?? older.isOnMains, percent: percent ?? older.percent, notice: notice ?? older.notice)
    }
}

extension EnvironmentValue: CustomStringConvertible {
    public var description: String {
        switch self {
        case .absent: "none"
        case .text(let text): text
        case .flag(let flag): flag ? "yes" : "no"
        case .clock(let offset): "\(offset.inSeconds) s"
        case .day(let day): "day \(day)"
        case .timeZone(let zone): "\(zone.name ?? "unnamed") (\(zone.secondsFromUTC) s)"
        case .file(let file):
            "\(ByteCount(file.size))\(file.contentHash.map { " " + String($0, radix: 16) } ?? ", not readable")"
        case .size(let size): "\(size)"
        case .devices(let names): names.isEmpty ? "none" : names.joined(separator: " ")
        case .power(let power): "\(power)"
        }
    }
}

extension PowerState: CustomStringConvertible {
    public var description: String {
        let source = isOnMains.map { $0 ? "mains" : "battery" }
        return [source, percent.map { "\($0) %" }, notice].compactMap { $0 }.joined(separator: ", ")
    }
}
