#if canImport(Glibc) && !PLIMSOLL_INERT
import CPlimsollLinux
import Glibc
public import Plimsoll
import Synchronization

/// State in memory that outlives the process: memory files kept by the service manager from one run of the service to
/// the next (`FDSTORE=1` of sd_notify(3)).
///
/// The store is faster than a disk and leaves nothing on one. State survives a crash and a restart of the service.
/// State is lost when the unit is stopped (`systemctl stop`, unless `FileDescriptorStorePreserve=yes`), and with the
/// machine. The unit must allow the store: `FileDescriptorStoreMax=` must be at least one more than the number of state
/// names. Otherwise the service manager silently closes all files received. The bytes are charged to the group whose
/// process wrote them.
///
/// A state is never partial: a file is sent once written, and the previous one is removed after that. After a removal
/// that the service manager could not be told of, which is an error, the state is still there.
public final class ServiceManagerStateStore: StateStore {
    private struct Kept {
        var generation: UInt64
        var file: Int32
    }

    private struct State {
        var kept: [String: Kept] = [:]
        /// The last generation of any name. No generation is used twice: an earlier file may still be kept.
        var generation: UInt64 = 0
        /// Labels of earlier files, which the service manager is still to remove.
        var superseded: [String] = []
    }

    private let serviceManager: ServiceManager
    /// Locked while the service manager is told, so that changes arrive in their order.
    private let state: Mutex<State>

    /// Creates a store at the service manager that `$NOTIFY_SOCKET` names; `nil` if there is none. The store has the
    /// state that an earlier run of the service left, from `$LISTEN_FDS` and related variables.
    ///
    /// - Throws: an error with the reason if the variable is no address.
    public convenience init?() throws {
        guard let serviceManager = try ServiceManager() else { return nil }
        self.init(serviceManager, inherited: Self.inherited { name in getenv(name).map { String(cString: $0) } })
    }

    /// Creates a store with inherited files.
    ///
    /// - Parameter inherited: open files with their names; those that are not state are left alone.
    package init(_ serviceManager: ServiceManager, inherited: [(name: String, file: Int32)]) {
        self.serviceManager = serviceManager
        var found = State()
        for (label, file) in inherited {
            guard let (generation, name) = Self.parse(label) else { continue }
            _ = fcntl(file, F_SETFD, FD_CLOEXEC)
            found.generation = max(found.generation, generation)
            let kept = Kept(generation: generation, file: file)
            guard let other = found.kept[name] else {
                found.kept[name] = kept
                continue
            }
            // The previous process was ended between sending the new file and removing the old one.
            let (older, newer) = other.generation < generation ? (other, kept) : (kept, other)
            close(older.file)
            found.kept[name] = newer
            if older.generation < newer.generation { found.superseded.append(Self.label(name, older.generation)) }
        }
        state = Mutex(found)
        state.withLock { _ = try? removeSuperseded(&$0) }
    }

    deinit { for kept in state.withLock({ $0.kept.values.map { $0 } }) { close(kept.file) } }

    public func write(_ name: String, _ bytes: [UInt8]) throws {
        guard Self.label(name, .max).utf8.count <= 255 else {
            throw ServiceManagerError(
                "cannot keep the state \"\(name.prefix(64))\" in the service manager because its name is too long; allowed are about 200 bytes"
            )
        }
        let file = plimsoll_memory_file("plimsoll-state")
        guard file >= 0 else {
            throw ServiceManagerError(
                "cannot make a memory file for the state \"\(name)\": \(String(cString: strerror(-file)))")
        }
        do {
            try fill(file, bytes, name)
            // One at a time: of two writers of a name, the later generation must be kept.
            try state.withLock { state in
                // The number of files that the service manager keeps is limited, so earlier ones go first.
                try? removeSuperseded(&state)
                let generation = state.generation + 1
                try serviceManager.notify("FDSTORE=1", "FDNAME=\(Self.label(name, generation))", descriptors: [file])
                state.generation = generation
                guard let before = exchange(&state.kept[name], Kept(generation: generation, file: file)) else { return }
                close(before.file)
                state.superseded.append(Self.label(name, before.generation))
                try? removeSuperseded(&state)
            }
        } catch {
            close(file)
            throw error
        }
    }

    public func read(_ name: String) throws -> [UInt8]? {
        try state.withLock { state in
            guard let file = state.kept[name]?.file else { return nil }
            var status = stat()
            guard fstat(file, &status) == 0 else { throw Self.failure("read", name) }
            var bytes = [UInt8](repeating: 0, count: Int(status.st_size)), done = 0
            while done < bytes.count {
                let count = bytes.withUnsafeMutableBytes {
                    pread(file, $0.baseAddress! + done, $0.count - done, off_t(done))
                }
                guard count > 0 else { throw Self.failure("read", name) }
                done += count
            }
            return bytes
        }
    }

    public func remove(_ name: String) throws {
        try state.withLock { state in
            // An earlier file of the name would be the state of the next run.
            try removeSuperseded(&state)
            guard let kept = state.kept[name] else { return }
            try serviceManager.notify("FDSTOREREMOVE=1", "FDNAME=\(Self.label(name, kept.generation))")
            close(kept.file)
            state.kept[name] = nil
        }
    }

    private func fill(_ file: Int32, _ bytes: [UInt8], _ name: String) throws {
        var done = 0
        while done < bytes.count {
            let count = bytes.withUnsafeBytes { pwrite(file, $0.baseAddress! + done, $0.count - done, off_t(done)) }
            guard count > 0 else { throw Self.failure("write", name) }
            done += count
        }
    }

    /// Has the service manager remove earlier files. Those that are left are removed by a later call, or the next run.
    private func removeSuperseded(_ state: inout State) throws(ServiceManagerError) {
        while let label = state.superseded.last {
            try serviceManager.notify("FDSTOREREMOVE=1", "FDNAME=\(label)")
            state.superseded.removeLast()
        }
    }

    private static func failure(_ call: String, _ name: String) -> ServiceManagerError {
        ServiceManagerError("\(call) of the state \"\(name)\" in memory: \(String(cString: strerror(errno)))")
    }

    // MARK: Names

    private static let prefix = "plimsoll.state."

    /// Returns a label in printable ASCII without a colon, as sd_notify(3) requires; other bytes become `%` and two
    /// digits.
    static func label(_ name: String, _ generation: UInt64) -> String {
        let digits = Array("0123456789ABCDEF".utf8)
        var escaped: [UInt8] = []
        for byte in name.utf8 {
            if byte > 32, byte < 127, byte != UInt8(ascii: ":"), byte != UInt8(ascii: "%") {
                escaped.append(byte)
            } else {
                escaped += [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 15)]]
            }
        }
        return prefix + "\(generation)." + String(decoding: escaped, as: UTF8.self)
    }

    /// Largest generation accepted from outside, so that later ones can be counted.
    static let mostGeneration = UInt64.max / 2

    /// Parses a label that `label(_:_:)` has written; returns `nil` for any other text.
    static func parse(_ label: String) -> (generation: UInt64, name: String)? {
        guard label.hasPrefix(prefix) else { return nil }
        let parts = label.dropFirst(prefix.count).split(separator: ".", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 2, let generation = UInt64(parts[0]) else { return nil }
        var bytes: [UInt8] = [], rest = Array(parts[1].utf8)[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            guard rest.count >= 2, let value = UInt8(String(decoding: rest.prefix(2), as: UTF8.self), radix: 16) else {
                return nil
            }
            bytes.append(value)
            rest = rest.dropFirst(2)
        }
        // Numbers with a sign or leading zeros were not written by this library.
        guard generation <= mostGeneration, let name = String(validating: bytes, as: UTF8.self),
            self.label(name, generation) == label
        else {
            return nil
        }
        return (generation, name)
    }

    /// Returns the files from descriptor 3 on, if they are meant for this process (sd_listen_fds(3)).
    static func inherited(_ environment: (String) -> String?) -> [(name: String, file: Int32)] {
        guard environment("LISTEN_PID").flatMap({ Int32($0) }) == getpid(),
            let count = environment("LISTEN_FDS").flatMap({ Int32($0) }),
            (1...4096).contains(count)
        else { return [] }
        let names = (environment("LISTEN_FDNAMES") ?? "").split(separator: ":", omittingEmptySubsequences: false).map(
            String.init)
        return (0..<Int(count)).compactMap { $0 < names.count ? (names[$0], 3 + Int32($0)) : nil }
    }
}
#endif
