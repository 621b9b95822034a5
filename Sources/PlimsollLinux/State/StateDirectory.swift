#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc
import Plimsoll
import Synchronization

/// A directory of states in use by this process.
///
/// Mutable state: `session` (the lock on the directory) by its own lock; known ends of files by their stripe's lock.
/// A stripe's lock is held across the system calls for a name, on purpose: two writers of one name run one after the
/// other. No lock is held during calls of user code.
package final class StateDirectory: Sendable {
    /// The largest state accepted, in bytes. A file longer than twice this is not a state file.
    package static let mostBytes = 1 << 30
    /// Minimum journal size, in bytes, before a small state counts as outgrown by changes: sixteen pages.
    private static let leastJournal = 64 << 10

    let path: String
    let kernel: any StateKernel

    /// The file that holds the lock; `nil` until first use.
    private let session = Mutex<Int32?>(nil)
    private let stripes = (0..<32).map { _ in Stripe() }

    /// A stripe: all names with the same hash remainder.
    private final class Stripe: Sendable {
        let tails = Mutex<[StateFileName: Tail]>([:])
    }

    /// The end of a state file, so that a change can be appended without reading the file.
    struct Tail {
        var nonce: UInt64
        var end: Int
        var count: UInt32
        var baseLength: Int
        /// True if incomplete data follows the end.
        var isTorn: Bool

        init(_ file: StateFile, fileLength: Int) {
            nonce = file.nonce
            end = file.end
            count = UInt32(file.records.count)
            baseLength = file.records[0].upperBound
            isTorn = fileLength > file.end
        }
    }

    package init(_ path: String, kernel: any StateKernel) {
        self.path = path
        self.kernel = kernel
    }

    deinit { closeLock() }

    private func closeLock() {
        let lock = session.withLock { exchange(&$0, nil) }
        guard let lock else { return }
        kernel.unlock(lock)
        kernel.close(lock)
    }

    // MARK: - One object per process

    /// Directories in use by their path without links, with their number of stores. An `flock` belongs to an open file,
    /// not to a process: two objects for one directory would lock each other out.
    private static let inUse = Mutex<[String: (directory: StateDirectory, stores: Int)]>([:])

    /// Returns the directory at `path` for one more store. All stores in the process share one object, with any
    /// spelling of the path. Each store calls `leave` in `deinit`.
    static func shared(_ path: String) -> StateDirectory {
        let path = absolute(path), place = withoutLinks(path)
        return inUse.withLock { inUse in
            let entry = inUse[place] ?? (StateDirectory(path, kernel: HostStateKernel()), 0)
            inUse[place] = (entry.directory, entry.stores + 1)
            return entry.directory
        }
    }

    /// Removes one store. The last one also releases the lock on the directory, while the table is locked. So a later
    /// store opens the directory after that.
    func leave() {
        Self.inUse.withLock { inUse in
            guard let (place, entry) = inUse.first(where: { $0.value.directory === self }) else { return }
            inUse[place] = entry.stores > 1 ? (self, entry.stores - 1) : nil
            if entry.stores == 1 { relinquish() }
        }
    }

    static func absolute(_ path: String) -> String {
        var path = path
        if !path.hasPrefix("/"), let here = getcwd(nil, 0) {
            path = String(cString: here) + "/" + path
            free(here)
        }
        while path.count > 1, path.hasSuffix("/") { path.removeLast() }
        return path
    }

    /// Follows the links of an absolute path, as far as the path exists. The result is the same once missing
    /// directories are made.
    private static func withoutLinks(_ path: String) -> String {
        var present = path.split(separator: "/"), missing: [Substring] = []
        while let name = present.last {
            if let place = realpath("/" + present.joined(separator: "/"), nil) {
                defer { free(place) }
                return missing.reversed().reduce(String(cString: place)) { "\($0)/\($1)" }
            }
            present.removeLast()
            if name != "." { missing.append(name) }
        }
        return missing.reversed().reduce("") { "\($0)/\($1)" }
    }

    // MARK: - Operations

    func write(_ name: StateFileName, _ bytes: [UInt8], _ reports: inout [StateStoreReport]) throws(FileStateStoreError)
    {
        guard bytes.count <= Self.mostBytes else { throw FileStateStoreError(.tooLarge, at(name.file)) }
        try stripe(name) { tails throws(FileStateStoreError) in
            try open(&reports)
            // Even if the write fails, the known end of the old file is no longer valid. A whole write sets a new one.
            tails[name] = nil
            tails[name] = try replace(name, bytes)
        }
    }

    func append(
        _ name: StateFileName, _ title: String, _ delta: [UInt8], _ reports: inout [StateStoreReport]
    ) throws(FileStateStoreError) -> Bool {
        guard delta.count <= Self.mostBytes else { throw FileStateStoreError(.tooLarge, at(name.file)) }
        return try stripe(name) { tails throws(FileStateStoreError) in
            try open(&reports)
            // The end is known from a write or a read of this process. Otherwise the end may be anywhere: after a
            // failed append, a torn one, or another process.
            guard let tail = tails[name] else { return false }
            let journal = tail.end - tail.baseLength + StateFile.recordHeaderLength + delta.count
            guard journal <= max(tail.baseLength, Self.leastJournal), tail.count < .max else { return false }
            tails[name] = nil
            tails[name] = try extend(name, tail, delta)
            return true
        }
    }

    func load(_ name: StateFileName, _ title: String, _ reports: inout [StateStoreReport]) throws(FileStateStoreError)
        -> StoredState
    {
        return try stripe(name) { tails throws(FileStateStoreError) in
            // A read-only directory has no writers, so reading needs no lock.
            do throws(FileStateStoreError) { try open(&reports) } catch { if error.reason != .readOnly { throw error } }
            tails[name] = nil
            let bytes: [UInt8]
            switch try contents(name) {
            case .none: return .absent
            case .some(.success(let all)): bytes = all
            case .some(.failure(let damage)):
                try putAside(name, title, damage.description, &reports)
                return .setAside(reason: damage.description)
            }
            let file: StateFile
            do throws(StateFile.Damage) {
                file = try StateFile(parsing: bytes)
            } catch {
                try putAside(name, title, error.description, &reports)
                return .setAside(reason: error.description)
            }
            if file.end < bytes.count { reports.append(.tailDropped(name: title, byteCount: bytes.count - file.end)) }
            tails[name] = Tail(file, fileLength: bytes.count)
            return .state(
                base: Array(bytes[file.records[0]]), deltas: file.records.dropFirst().map { Array(bytes[$0]) })
        }
    }

    func remove(_ name: StateFileName, _ reports: inout [StateStoreReport]) throws(FileStateStoreError) {
        try stripe(name) { tails throws(FileStateStoreError) in
            try open(&reports)
            tails[name] = nil
            try take(name.file)
        }
    }

    func setAside(_ name: StateFileName, _ title: String, _ reason: String, _ reports: inout [StateStoreReport])
        throws(FileStateStoreError)
    {
        try stripe(name) { tails throws(FileStateStoreError) in
            try open(&reports)
            tails[name] = nil
            try putAside(name, title, reason, &reports)
        }
    }

    private func putAside(
        _ name: StateFileName, _ title: String, _ reason: String, _ reports: inout [StateStoreReport]
    ) throws(FileStateStoreError) {
        if let report = try putAside(name, title, reason) { reports.append(report) }
    }

    private func stripe<Result>(
        _ name: StateFileName, _ body: (inout [StateFileName: Tail]) throws(FileStateStoreError) -> Result
    ) throws(FileStateStoreError) -> Result {
        try stripes[Int(UInt(bitPattern: name.hashValue) % UInt(stripes.count))].tails.withLock {
            tails throws(FileStateStoreError) in try body(&tails)
        }
    }

    // MARK: - The lock on the directory

    /// Makes the directory if needed, takes the lock, and removes files left by interrupted writes.
    ///
    /// Writers and readers call this while holding their stripe, for which `relinquish()` waits. If called before that,
    /// the lock could be gone again when a write begins.
    func open(_ reports: inout [StateStoreReport]) throws(FileStateStoreError) {
        let swept = try session.withLock { session throws(FileStateStoreError) in
            if session != nil { return 0 }
            session = try takeLock()
            return sweep()
        }
        if swept > 0 { reports.append(.swept(count: swept)) }
    }

    /// Releases the directory for another process, once no operation is running.
    func relinquish() { relinquish(stripe: 0) }

    private func relinquish(stripe index: Int) {
        guard index < stripes.count else { return closeLock() }
        stripes[index].tails.withLock { tails in
            tails.removeAll()
            relinquish(stripe: index + 1)
        }
    }
}

/// The file names of one state.
///
/// Letters, digits, `_`, `-` and (except at the start) `.` are kept. Every other byte of the name's UTF-8 becomes `%`
/// and two digits. So no name leaves the directory, and no two names share a file.
struct StateFileName: Hashable {
    /// Maximum number of bytes of an escaped name. With a suffix the name stays below the limit of a file name
    /// (`NAME_MAX`, 255).
    static let longest = 200
    /// Number of states of a name that are kept aside; the oldest is removed.
    static let mostAside = 3

    /// The suffixes of files that this package makes.
    private static let stateEnding = ".state", newEnding = ".state-new"

    let escaped: String

    /// Creates the file names of a state; fails for a name that is empty or too long.
    init?(_ name: String) {
        var bytes: [UInt8] = []
        for byte in name.utf8 {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"),
                UInt8(ascii: "_"), UInt8(ascii: "-"):
                bytes.append(byte)
            case UInt8(ascii: ".") where !bytes.isEmpty: bytes.append(byte)
            default: bytes += [UInt8(ascii: "%"), Self.digit(byte >> 4), Self.digit(byte & 15)]
            }
            if bytes.count > Self.longest { return nil }
        }
        guard !bytes.isEmpty else { return nil }
        escaped = String(decoding: bytes, as: UTF8.self)
    }

    var file: String { escaped + Self.stateEnding }
    /// The file that is written first and then renamed to `file`.
    var new: String { escaped + Self.newEnding }
    /// The file of a state set aside; `index` 0 is the latest.
    func aside(_ index: Int) -> String { "\(escaped)\(Self.stateEnding)-aside-\(index + 1)" }

    /// Returns true if `file` was left by an interrupted write.
    static func isLeftover(_ file: String) -> Bool { file.hasSuffix(newEnding) }

    private static func digit(_ value: UInt8) -> UInt8 {
        value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "A") + value - 10
    }
}
#endif
