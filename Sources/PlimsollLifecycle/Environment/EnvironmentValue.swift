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
    /// A time zone, with the facts that cached formatters and calendars depend on.
    ///
    /// - Parameters:
    ///   - name: the name, such as `Europe/Berlin`: `$TZ`, or the target of the link `/etc/localtime`; `nil` if that is
    ///     a plain file.
    ///   - rulesHash: FNV-1a of the zone's rules, 64 bits; `nil` if there is no rules file.
    ///   - secondsFromUTC: present distance from UTC, in seconds to the east. Changes with summer time.
    case timeZone(name: String?, rulesHash: UInt64? = nil, secondsFromUTC: Int = 0)
    /// The content of a file at the time of reading.
    ///
    /// - Parameters:
    ///   - contentHash: FNV-1a of the content, 64 bits; `nil` if the file could not be read.
    ///   - size: length in bytes.
    ///   - modified: time of the last write, since 1970.
    case file(contentHash: UInt64?, size: Int, modified: Duration = .zero)
    /// A limit.
    case size(ByteCount)
    /// The names of devices, in order.
    case devices([String])
    /// The power supply. A `nil` part is unknown or not reported.
    ///
    /// - Parameters:
    ///   - isOnMains: true if the power comes from outside (`online` in `/sys/class/power_supply`), not from a battery.
    ///   - percent: charge of the emptiest battery in percent, `0...100` (`capacity`).
    ///   - notice: a notice that the machine will be taken away, in the words of the sender, such as the cloud
    ///     provider. Set by a poster; an empty notice withdraws the previous one.
    case power(isOnMains: Bool? = nil, percent: Int? = nil, notice: String? = nil)
}

extension EnvironmentValue {
    /// Clock moves smaller than this do not count as setting the clock. They don't matter to dates, and two clocks
    /// can't be read at once.
    static let clockTolerance = Duration.milliseconds(100)

    /// Returns true if the step from one value to the other is no change.
    package func isSame(as other: EnvironmentValue) -> Bool {
        switch (self, other) {
        case (.clock(let left), .clock(let right)): max(left, right) - min(left, right) < Self.clockTolerance
        // Writing the same content again is no change. The time counts only if a hash is unknown.
        case (.file(let left?, let leftSize, _), .file(let right?, let rightSize, _)):
            left == right && leftSize == rightSize
        default: self == other
        }
    }

    /// Returns this value, with unset parts taken from `older`.
    package func over(_ older: EnvironmentValue?) -> EnvironmentValue {
        guard case .power(let isOnMains, let percent, let notice) = self,
            case .power(let oldIsOnMains, let oldPercent, let oldNotice) = older
        else { return self }
        return .power(
            isOnMains: isOnMains ?? oldIsOnMains, percent: percent ?? oldPercent, notice: notice ?? oldNotice)
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
        case .timeZone(let name, _, let secondsFromUTC): "\(name ?? "unnamed") (\(secondsFromUTC) s)"
        case .file(let hash, let size, _):
            "\(ByteCount(size))\(hash.map { " " + String($0, radix: 16) } ?? ", not readable")"
        case .size(let size): "\(size)"
        case .devices(let names): names.isEmpty ? "none" : names.joined(separator: " ")
        case .power(let isOnMains, let percent, let notice):
            [isOnMains.map { $0 ? "mains" : "battery" }, percent.map { "\($0) %" }, notice].compactMap { $0 }
                .joined(separator: ", ")
        }
    }
}
