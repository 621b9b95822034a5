#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc
import Plimsoll
import PlimsollLifecycle
import Synchronization

extension LinuxEnvironment {
    /// The file of the machine's time zone.
    static let localTime = "/etc/localtime"
    static let zones = "/usr/share/zoneinfo/"
    /// The files of the machine's locale: systemd's, then Debian's.
    static let localeFiles = ["/etc/locale.conf", "/etc/default/locale"]
    static let powerSupplies = "/sys/class/power_supply"
    /// Maximum number of bytes hashed. A longer file is compared by beginning, length and time.
    static let mostHashed = 16 << 20

    /// Returns the files on which `kind` depends.
    func paths(for kind: EnvironmentChange.Kind) -> [String]? {
        switch kind {
        case .file(let path): [path]
        case .timeZone: [zoneFile ?? Self.localTime]
        case .locale: Self.localeFiles
        default: nil
        }
    }

    func read(_ kind: EnvironmentChange.Kind) -> EnvironmentValue? {
        switch kind {
        case .clock:
            let clocks = kernel.clocks
            return .clock(clocks.real - clocks.boot)
        case .day: return .day(LocalTime(offset: kernel.secondsFromUTC).day(at: kernel.clocks.real.components.seconds))
        case .timeZone: return timeZone()
        case .locale: return locale()
        case .file(let path): return file(at: path)
        case .device(let subsystem): return devices(of: subsystem)
        case .power: return power()
        case .limit, .credentials, .protectedData, .custom: return nil
        }
    }

    // MARK: Files

    /// Reads the version of a file; returns `nil` if that is impossible just now.
    private func file(at path: String) -> EnvironmentValue? {
        var place = path
        var details = kernel.details(of: place)
        for _ in 0..<40 where details.kind == .link {
            guard let target = kernel.target(of: place) else { return nil }
            place =
                target.hasPrefix("/") ? target : place[..<(place.lastIndex(of: "/") ?? place.startIndex)] + "/" + target
            details = kernel.details(of: place)
        }
        switch details.kind {
        case .missing: return .absent
        case .unreachable, .link: return nil
        case .directory: return .file(contentHash: nil, size: details.size, modified: details.modified)
        case .file: break
        }
        switch hash(of: path) {
        case .success(let (hash, size)):
            return .file(contentHash: hash, size: max(size, details.size), modified: details.modified)
        case .failure(let error) where error.number == ENOENT: return .absent
        case .failure(let error) where error.isLasting:
            return .file(contentHash: nil, size: details.size, modified: details.modified)
        case .failure: return nil
        }
    }

    /// Returns FNV-1a of the content, and the number of bytes read.
    private func hash(of path: String) -> Result<(UInt64, Int), KernelError> {
        let file = kernel.open(path, .reading)
        guard file >= 0 else { return .failure(KernelError(number: -file)) }
        defer { kernel.close(file) }
        let chunk = TextBuffer(capacity: 65536)
        var hash = FNV1a(), size = 0
        while size < Self.mostHashed {
            let count = kernel.read(file, from: size, into: chunk.bytes)
            if count < 0 { return .failure(KernelError(number: Int32(clamping: -count))) }
            if count == 0 { break }
            for byte in chunk.bytes[..<count] { hash.add(byte) }
            size += count
        }
        return .success((hash.hash, size))
    }

    // MARK: Time zone and locale

    /// The file that `$TZ` names; `nil` if `$TZ` is unset or a rule such as `EST5EDT,M3.2.0,M11.1.0`.
    private var zoneFile: String? {
        guard var name = zoneVariable, !name.isEmpty else { return nil }
        if name.hasPrefix(":") { name.removeFirst() }
        if name.contains(",") { return nil }
        return name.hasPrefix("/") ? name : Self.zones + name
    }

    private func timeZone() -> EnvironmentValue {
        let path = zoneFile ?? Self.localTime
        var name = zoneVariable.map { $0.hasPrefix(":") ? String($0.dropFirst()) : $0 }
        if name == nil, let target = kernel.target(of: path) { name = target }
        if let full = name, let range = full.utf8RangeOf("zoneinfo/") { name = String(full[range.upperBound...]) }
        let hash = try? hash(of: path).get().0
        return .timeZone(
            name: name, rulesHash: hash,
            secondsFromUTC: kernel.secondsFromUTC(at: kernel.clocks.real.components.seconds))
    }

    private func locale() -> EnvironmentValue? {
        for path in Self.localeFiles {
            switch kernel.contents(of: path) {
            case .success(let bytes):
                if let name = LocaleFile.name(in: String(decoding: bytes, as: UTF8.self)) { return .text(name) }
            case .failure(let error) where error.isLasting: continue
            case .failure: return nil
            }
        }
        return .absent
    }

    // MARK: Devices

    private func devices(of subsystem: String) -> EnvironmentValue {
        .devices(
            (kernel.names(in: "/sys/class/\(subsystem)") ?? kernel.names(in: "/sys/bus/\(subsystem)/devices") ?? [])
                .sorted())
    }

    private func power() -> EnvironmentValue {
        var isOnMains: Bool?, least: Int?
        for name in kernel.names(in: Self.powerSupplies) ?? [] {
            func attribute(_ file: String) -> String? {
                guard case .success(let bytes) = kernel.contents(of: "\(Self.powerSupplies)/\(name)/\(file)") else {
                    return nil
                }
                return String(decoding: bytes.prefix { $0 != KernelText.newline }, as: UTF8.self)
            }
            // A mouse has a battery too.
            if attribute("scope") == "Device" { continue }
            if let online = attribute("online") { isOnMains = online != "0" || isOnMains == true }
            if let percent = attribute("capacity").flatMap({ Int($0) }), (0...100).contains(percent) {
                least = min(least ?? 100, percent)
            }
        }
        return .power(isOnMains: isOnMains, percent: least)
    }
}

/// Parser of the machine's locale file (locale.conf(5)): variables in shell syntax.
enum LocaleFile {
    /// Returns the value of `LC_ALL`, or else of `LANG`, without the encoding; `nil` if there is neither.
    static func name(in text: String) -> String? {
        var found: [String: String] = [:]
        for line in text.split(whereSeparator: \.isNewline) {
            guard let equals = line.firstIndex(of: "=") else { continue }
            let value = line[line.index(after: equals)...].filter { $0 != "\"" && $0 != "'" && !$0.isWhitespace }
            found[line[..<equals].filter { !$0.isWhitespace }] = String(value.prefix { $0 != "." && $0 != "#" })
        }
        guard let name = found["LC_ALL"] ?? found["LANG"], !name.isEmpty else { return nil }
        return name
    }
}

extension String {
    /// Returns the range of the last `part`.
    fileprivate func utf8RangeOf(_ part: String) -> Range<Index>? {
        var found: Range<Index>?, start = startIndex
        while start < endIndex {
            if self[start...].hasPrefix(part) { found = start..<index(start, offsetBy: part.count) }
            start = index(after: start)
        }
        return found
    }
}

extension LinuxEnvironment {
    var signals: [Capabilities.Signal] {
        state.withLock { state in
            if state.isEmpty { return [] }
            if state.hasNoThread {
                return [
                    .init(
                        "environment", isLive: false, "cannot start a thread",
                        remedy: "raise the limit of processes (pids.max, RLIMIT_NPROC)")
                ]
            }
            var signals: [Capabilities.Signal] = []
            func report(_ name: String, _ retry: RetryState, _ detail: String, remedy: String) {
                if let failure = retry.failure {
                    signals.append(
                        .init(
                            name, isLive: false, "\(failure); read again only on the return to the foreground",
                            remedy: remedy))
                } else {
                    signals.append(.init(name, isLive: true, detail))
                }
            }
            if state.counts.keys.contains(where: ClockWatch.served.contains) {
                report(
                    "clock set", state.clock.retry, "timerfd, cancelled when the clock is set",
                    remedy: "raise the limit of open files (RLIMIT_NOFILE)")
            }
            if !state.files.isEmpty {
                report(
                    "file changes", state.files.retry, "inotify, \(state.files.kinds.count) watched",
                    remedy:
                        "raise fs.inotify.max_user_instances and fs.inotify.max_user_watches, and let the service read the directories"
                )
            }
            if !state.devices.kinds.isEmpty {
                report(
                    "devices", state.devices.retry, "netlink, the kernel's uevents",
                    remedy:
                        "let the service open netlink sockets (RestrictAddressFamilies=AF_NETLINK); the network namespace of a container receives few events"
                )
            }
            return signals
        }
    }
}
#endif
