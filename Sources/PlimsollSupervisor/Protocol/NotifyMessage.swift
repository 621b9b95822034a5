import Glibc

/// A message of a service by sd_notify(3), in `KEY=VALUE` lines.
package struct NotifyMessage: Sendable, Hashable {
    /// The service has started up, or has loaded a new configuration.
    package var isReady = false
    package var isStopping = false
    package var isReloading = false
    /// One line for people.
    package var status: String?
    /// The errno of a failure.
    package var errorNumber: Int32?
    /// The new main process.
    package var mainProcess: Int32?
    package var isAlive = false
    /// `WATCHDOG=trigger`: the service asks to be treated as if the watchdog had expired.
    package var triggersWatchdog = false
    /// Interval at which the service will report that it is alive; zero for no longer.
    package var watchdogInterval: Duration?
    /// Extra time from now that a start, reload or stop may take.
    package var timeoutExtension: Duration?
    /// The attached descriptors are to be stored for the next run.
    package var storesDescriptors = false
    /// Stored descriptors named `descriptorName` are to be closed.
    package var removesDescriptors = false
    /// 1 to 255 printable ASCII characters without a colon.
    package var descriptorName: String?
    /// Rejected lines, each with the reason; the other lines are valid.
    package var problems: [String] = []

    /// Greatest number of recorded problems.
    static let maximumProblems = 16
    /// One year in microseconds. No watchdog or timeout is longer.
    private static let longest: UInt64 = 31_536_000_000_000

    package init() {}

    /// True if no line was understood.
    package var isEmpty: Bool {
        var bare = self
        bare.problems = []
        return bare == NotifyMessage()
    }

    /// Parses the text of a datagram. Unknown keys are skipped. The last occurrence of a key wins, as in systemd.
    package init(parsing text: some Collection<UInt8>) {
        for line in text.split(whereSeparator: { $0 == UInt8(ascii: "\n") || $0 == 0 }) { take(line) }
    }

    private mutating func take(_ line: some Collection<UInt8>) {
        guard let sign = line.firstIndex(of: UInt8(ascii: "=")), sign != line.startIndex else {
            return refuse(line, "is not KEY=VALUE")
        }
        guard let key = String(validating: line[..<sign], as: UTF8.self),
            let value = String(validating: line[line.index(after: sign)...], as: UTF8.self)
        else {
            return refuse(line, "is not UTF-8")
        }
        switch key {
        case "READY": set(\.isReady, line, value)
        case "STOPPING": set(\.isStopping, line, value)
        case "RELOADING": set(\.isReloading, line, value)
        case "FDSTORE": set(\.storesDescriptors, line, value)
        case "FDSTOREREMOVE": set(\.removesDescriptors, line, value)
        case "WATCHDOG": if value == "trigger" { triggersWatchdog = true } else { set(\.isAlive, line, value) }
        case "STATUS": status = String(value.prefix(1024).map { $0.isASCII && $0.asciiValue! < 0x20 ? " " : $0 })
        case "ERRNO": number(line, value, 0...4095) { $0.errorNumber = Int32($1) }
        // At most PID_MAX_LIMIT of a 64-bit kernel.
        case "MAINPID": number(line, value, 1...4_194_304) { $0.mainProcess = Int32($1) }
        case "WATCHDOG_USEC": number(line, value, 0...Self.longest) { $0.watchdogInterval = .microseconds(Int64($1)) }
        case "EXTEND_TIMEOUT_USEC":
            number(line, value, 0...Self.longest) { $0.timeoutExtension = .microseconds(Int64($1)) }
        case "FDNAME":
            let isName =
                1...255 ~= value.utf8.count && value.utf8.allSatisfy { 0x20...0x7e ~= $0 && $0 != UInt8(ascii: ":") }
            if isName {
                descriptorName = value
            } else {
                refuse(line, "is not a name of 1 to 255 printable characters without a colon")
            }
        default: break
        }
    }

    private mutating func set(
        _ field: WritableKeyPath<NotifyMessage, Bool>, _ line: some Collection<UInt8>, _ value: String
    ) {
        if value == "1" { self[keyPath: field] = true } else { refuse(line, "must be 1") }
    }

    private mutating func number(
        _ line: some Collection<UInt8>, _ value: String, _ range: ClosedRange<UInt64>,
        _ take: (inout NotifyMessage, UInt64) -> Void
    ) {
        guard value.utf8.allSatisfy({ UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 }), let number = UInt64(value),
            range.contains(number)
        else {
            return refuse(line, "is not a number from \(range.lowerBound) to \(range.upperBound)")
        }
        take(&self, number)
    }

    private mutating func refuse(_ line: some Collection<UInt8>, _ reason: String) {
        guard problems.count < Self.maximumProblems else { return }
        // The text of other processes reaches logs, so show only printable characters, and few of them.
        let shown = String(decoding: line.prefix(60).map { 0x20...0x7e ~= $0 ? $0 : UInt8(ascii: "?") }, as: UTF8.self)
        problems.append("\"\(shown)\" \(reason)")
    }
}
