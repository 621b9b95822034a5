#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc
import Plimsoll

/// The request in `$MEMORY_PRESSURE_WATCH` and `$MEMORY_PRESSURE_WRITE`: the service manager's protocol for notifying
/// services of memory pressure.
enum ServiceManagerWatch: Equatable {
    /// The variable is not set.
    case absent
    /// The variable is empty or `/dev/null`: the operator wants no reaction to announcements or stall triggers.
    case disabled
    /// The request can't be followed, for this reason.
    case refused(String)
    /// The named file does not exist, or not now.
    case unreachable(String)
    /// The file to watch.
    case watch(Watch)

    struct Watch: Equatable {
        enum Kind: Equatable { case stallFile, fifo, socket }
        var path: String
        var kind: Kind
        /// Bytes to write after opening, as received.
        var bytes: [UInt8]
    }

    /// Parses the two variables and checks the file at the path. `unified` is the process's own group, to tell a
    /// parent's variables from ours.
    init(watch: String?, write: String?, unified: GroupPlace, _ kernel: any Kernel) {
        guard let path = watch else {
            self = .absent
            return
        }
        guard !path.isEmpty, path != "/dev/null" else {
            self = .disabled
            return
        }
        if let problem = Self.problem(ofPath: path) {
            self = .refused("$MEMORY_PRESSURE_WATCH \(problem): \(path.prefix(200))")
            return
        }
        guard let bytes = write.map(Self.decode) ?? [] else {
            self = .refused("$MEMORY_PRESSURE_WRITE is not base64")
            return
        }
        let kind: Watch.Kind
        switch kernel.status(of: path) {
        case .fifo: kind = .fifo
        case .socket: kind = .socket
        case .regular(let system):
            if system == .other {
                self = .refused("\(path) is a file of neither the cgroup nor the proc file system")
                return
            }
            if system == .cgroup2, let problem = Self.problem(ofGroupFile: path, unified, kernel) {
                self = .refused(problem)
                return
            }
            kind = .stallFile
        case .directory:
            self = .refused("\(path) is a directory")
            return
        case .other:
            self = .refused("\(path) is neither a pressure file nor a FIFO nor a socket")
            return
        case .failed(let number):
            self = .unreachable("\(path): \(KernelError(number: number))")
            return
        }
        // The kernel takes 32 bytes. Longer text would be cut into another threshold (K2).
        if bytes.count > (kind == .stallFile ? 32 : 4096) {
            self = .refused("$MEMORY_PRESSURE_WRITE is \(bytes.count) bytes long, more than \(path) accepts")
            return
        }
        self = .watch(Watch(path: path, kind: kind, bytes: bytes))
    }

    private static func problem(ofPath path: String) -> String? {
        if path.utf8.count > 4095 { return "is longer than a path may be" }
        if path.utf8.first != UInt8(ascii: "/") { return "is not an absolute path" }
        let parts = path.split(separator: "/", omittingEmptySubsequences: true)
        return parts.contains(".") || parts.contains("..") ? "holds . or .. components" : nil
    }

    /// Returns the reason that a group's pressure file is not meant for this process. Children inherit variables, and
    /// may have been moved to another group.
    ///
    /// Ours are the own group and, where the service has subgroups, the groups above within the same unit.
    private static func problem(ofGroupFile path: String, _ unified: GroupPlace, _ kernel: any Kernel) -> String? {
        guard case .directory(let own, _) = unified else { return nil }
        let watched = path.split(separator: "/").dropLast()
        // The service manager may name another mount of the hierarchy: agents on the host make mounts of their own.
        let places = ([own] + ControlGroup.unifiedDirectories(kernel)).map { $0.split(separator: "/") }
        guard let mine = places.first(where: { $0.starts(with: watched) }) else {
            return "\(path) belongs to another group than ours, \(own): inherited from a parent"
        }
        let between = mine.dropFirst(watched.count)
        let isOtherUnit = between.contains { $0.hasSuffix(".service") || $0.hasSuffix(".scope") }
        return isOtherUnit ? "\(path) belongs to a unit that encloses ours, \(own): inherited from a parent" : nil
    }

    /// Decodes RFC 4648 base64, padded; returns `nil` for anything else.
    static func decode(_ text: String) -> [UInt8]? {
        var bytes: [UInt8] = []
        var (bits, count, padding): (UInt32, Int, Int) = (0, 0, 0)
        for symbol in text.utf8 {
            let value: UInt8
            switch symbol {
            case UInt8(ascii: "A")...UInt8(ascii: "Z"): value = symbol - UInt8(ascii: "A")
            case UInt8(ascii: "a")...UInt8(ascii: "z"): value = symbol - UInt8(ascii: "a") + 26
            case UInt8(ascii: "0")...UInt8(ascii: "9"): value = symbol - UInt8(ascii: "0") + 52
            case UInt8(ascii: "+"): value = 62
            case UInt8(ascii: "/"): value = 63
            case UInt8(ascii: "="):
                padding += 1
                continue
            case KernelText.newline, KernelText.space: continue
            default: return nil
            }
            guard padding == 0 else { return nil }
            bits = bits << 6 | UInt32(value)
            count += 1
            // Bits beyond the last whole byte. The first symbol of four completes no byte.
            let rest = count * 6 % 8
            if rest < 6 { bytes.append(UInt8(truncatingIfNeeded: bits >> rest)) }
        }
        return (count + padding) % 4 == 0 && padding <= 2 ? bytes : nil
    }
}
#endif
