/// What held, or holds, of something outside the program.
public enum EnvironmentValue: Sendable, Hashable {
    /// There is none: no file, no limit.
    case absent
    /// A word: a locale, or whatever a poster chose.
    case text(String)
    /// Yes or no: whether protected data can be reached.
    case flag(Bool)
    /// `CLOCK_REALTIME` less `CLOCK_BOOTTIME`: it moves only when the clock is set.
    case clock(Duration)
    /// The date of the time zone, in days since 1970-01-01.
    case day(Int)
    /// A time zone.
    case timeZone(TimeZoneVersion)
    /// What a file says.
    case file(FileVersion)
    /// A limit.
    case size(ByteCount)
    /// The names of devices, in order.
    case devices([String])
    /// Where the power comes from.
    case power(PowerState)
}

extension EnvironmentValue {
    /// By so much may the clock move before it counts as set: less is of no consequence to dates, and two clocks can't be read at once.
    static let clockTolerance = Duration.milliseconds(100)

    /// Whether going from one to the other is no change.
    func isSame(as other: EnvironmentValue) -> Bool {
        switch (self, other) {
        case (.clock(let left), .clock(let right)): max(left, right) - min(left, right) < Self.clockTolerance
        case (.file(let left), .file(let right)): left.isSame(as: right)
        default: self == other
        }
    }

    /// This, with what it leaves open taken from `older`.
    func over(_ older: EnvironmentValue?) -> EnvironmentValue {
        guard case .power(let new) = self, case .power(let old) = older else { return self }
        return .power(new.over(old))
    }
}

/// What a file said when it was read.
public struct FileVersion: Sendable, Hashable {
    /// FNV-1a of the content, 64 bits; `nil` if it could not be read.
    public var contentHash: UInt64?
    /// Length in bytes.
    public var size: Int
    /// When it was last written, since 1970.
    public var modified: Duration

    /// A file of that content, size and time.
    public init(contentHash: UInt64?, size: Int, modified: Duration = .zero) {
        self.contentHash = contentHash
        self.size = size
        self.modified = modified
    }

    /// Whether the content is the same. The time counts only where the content is unknown: writing the same again is no change.
    func isSame(as other: FileVersion) -> Bool {
        guard let contentHash, let hash = other.contentHash else { return self == other }
        return contentHash == hash && size == other.size
    }
}

/// A time zone, as what is made for it must know it.
public struct TimeZoneVersion: Sendable, Hashable {
    /// `Europe/Berlin`: `$TZ`, or what `/etc/localtime` links to; `nil` if that is a plain file.
    public var name: String?
    /// FNV-1a of its rules, 64 bits; `nil` if there is no file of them.
    public var rulesHash: UInt64?
    /// Its distance from UTC now, in seconds to the east: summer time changes it.
    public var secondsFromUTC: Int

    /// A zone of that name and rules.
    public init(name: String?, rulesHash: UInt64? = nil, secondsFromUTC: Int = 0) {
        self.name = name
        self.rulesHash = rulesHash
        self.secondsFromUTC = secondsFromUTC
    }
}

/// Where the power comes from. What is `nil` isn't known, or not told of.
public struct PowerState: Sendable, Hashable {
    /// Whether it comes from outside (`online` in `/sys/class/power_supply`), not from a battery.
    public var isOnMains: Bool?
    /// How full the emptiest battery is, in percent, `0...100` (`capacity`).
    public var percent: Int?
    /// That the machine will be taken away, in the words of who said so: a cloud's notice. A poster sets it; an empty one takes it back.
    public var notice: String?

    /// A state of which only that is known.
    public init(isOnMains: Bool? = nil, percent: Int? = nil, notice: String? = nil) {
        self.isOnMains = isOnMains
        self.percent = percent
        self.notice = notice
    }

    func over(_ older: PowerState) -> PowerState {
        PowerState(isOnMains: isOnMains ?? older.isOnMains, percent: percent ?? older.percent, notice: notice ?? older.notice)
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
        case .file(let file): "\(ByteCount(file.size))\(file.contentHash.map { " " + String($0, radix: 16) } ?? ", not readable")"
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
