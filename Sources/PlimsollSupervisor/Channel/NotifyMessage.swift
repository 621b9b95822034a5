import Glibc

/// What a service has said by sd_notify(3): `KEY=VALUE` lines.
public struct NotifyMessage: Sendable, Hashable {
    /// It has started up, or taken up a new configuration.
    public var isReady = false
    public var isStopping = false
    public var isReloading = false
    /// One line for people.
    public var status: String?
    /// Why it fails, as an errno.
    public var errorNumber: Int32?
    /// Another process is the main one.
    public var mainProcess: Int32?
    /// It is alive.
    public var isAlive = false
    /// `WATCHDOG=trigger`: it wants to be treated as if it had not been alive in time.
    public var triggersWatchdog = false
    /// How often it will say that it is alive.
    public var watchdogInterval: Duration?
    /// Its start, reload or stop may take that much longer from now.
    public var timeoutExtension: Duration?
    /// Its descriptors are to be kept for its next run.
    public var storesDescriptors = false
    /// Kept descriptors of `descriptorName` are to be closed.
    public var removesDescriptors = false
    /// 1 to 255 printable ASCII characters without a colon.
    public var descriptorName: String?
    /// Lines that can't be taken, each with the reason; the others hold.
    public var problems: [String] = []

    /// What is said of problems at most.
    static let maximumProblems = 16
    /// A year: nothing that is watched or waited for takes longer.
    private static let longest: UInt64 = 31_536_000_000_000

    public init() {}

    /// Whether nothing in it was understood.
    public var isEmpty: Bool {
        var bare = self
        bare.problems = []
        return bare == NotifyMessage()
    }

    /// The text of a datagram. Keys that are not known are passed over; of a key that comes twice the last holds, as systemd has it.
    public init(parsing text: some Collection<UInt8>) {
        for line in text.split(whereSeparator: { $0 == UInt8(ascii: "\n") || $0 == 0 }) { take(line) }
    }

    private mutating func take(_ line: some Collection<UInt8>) {
        guard let sign = line.firstIndex(of: UInt8(ascii: "=")), sign != line.startIndex else { return refuse(line, "is not KEY=VALUE") }
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
        case "MAINPID": number(line, value, 1...4_194_304) { $0.mainProcess = Int32($1) }  // PID_MAX_LIMIT of a 64-bit kernel
        case "WATCHDOG_USEC": number(line, value, 1...Self.longest) { $0.watchdogInterval = .microseconds(Int64($1)) }
        case "EXTEND_TIMEOUT_USEC": number(line, value, 0...Self.longest) { $0.timeoutExtension = .microseconds(Int64($1)) }
        case "FDNAME":
            let isName = 1...255 ~= value.utf8.count && value.utf8.allSatisfy { 0x20...0x7e ~= $0 && $0 != UInt8(ascii: ":") }
            if isName { descriptorName = value } else { refuse(line, "is no name: 1 to 255 printable characters without a colon") }
        default: break
        }
    }

    private mutating func set(_ field: WritableKeyPath<NotifyMessage, Bool>, _ line: some Collection<UInt8>, _ value: String) {
        if value == "1" { self[keyPath: field] = true } else { refuse(line, "has another value than 1") }
    }

    private mutating func number(
        _ line: some Collection<UInt8>, _ value: String, _ range: ClosedRange<UInt64>, _ take: (inout NotifyMessage, UInt64) -> Void
    ) {
        guard value.utf8.allSatisfy({ UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 }), let number = UInt64(value), range.contains(number) else {
            return refuse(line, "is no number from \(range.lowerBound) to \(range.upperBound)")
        }
        take(&self, number)
    }

    private mutating func refuse(_ line: some Collection<UInt8>, _ reason: String) {
        guard problems.count < Self.maximumProblems else { return }
        // What others wrote reaches logs: printable, and not at length.
        let shown = String(decoding: line.prefix(60).map { 0x20...0x7e ~= $0 ? $0 : UInt8(ascii: "?") }, as: UTF8.self)
        problems.append("\"\(shown)\" \(reason)")
    }
}
