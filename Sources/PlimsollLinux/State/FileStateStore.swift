#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc
public import Plimsoll
import Synchronization

/// A store with one file a state name in a directory. A process killed at any instant leaves the old state or the new.
///
/// A write goes to a second file, which is synchronized and then renamed over the old one. Then the directory is
/// synchronized. Changes are appended to the same file, each with a checksum. A file that is truncated, damaged or from
/// a newer version is renamed and reads as absent. The last three such files of a name are kept.
///
/// Directory and files are for the owner alone. Missing directories are made at first use; errors of that come from
/// that call. The directory belongs to one process at a time, which from then on holds an `flock` on the file `lock`
/// there (until `relinquish`). Stores of the same directory in one process share the lock, with any spelling of the
/// path and through any link.
public final class FileStateStore: StateStore {
    private let directory: StateDirectory
    private let report: (@Sendable (StateStoreReport) -> Void)?

    /// Creates a store in `directory`. Follows links on the path, and reads and writes nothing before the first call.
    ///
    /// - Parameters:
    ///   - directory: an absolute path, or one relative to the current directory.
    ///   - onReport: receives a sentence on each event that the service should know of, on the thread of the call
    ///     that found out: a state set aside, a last change dropped, files of interrupted writes removed.
    public convenience init(directory: String, onReport: (@Sendable (String) -> Void)? = nil) {
        self.init(StateDirectory.shared(directory), report: { onReport?($0.description) })
    }

    package init(_ directory: StateDirectory, report: (@Sendable (StateStoreReport) -> Void)? = nil) {
        self.directory = directory
        self.report = report
    }

    deinit { directory.leave() }

    /// The directory, as an absolute path.
    public var path: String { directory.path }

    public func write(_ name: String, _ bytes: [UInt8]) throws {
        let file = try fileName(name)
        try reporting { reports throws(FileStateStoreError) in try directory.write(file, bytes, &reports) }
    }

    public func append(_ delta: [UInt8], to name: String) throws -> Bool {
        let file = try fileName(name)
        return try reporting { reports throws(FileStateStoreError) in try directory.append(file, name, delta, &reports)
        }
    }

    public func read(_ name: String) throws -> [UInt8]? {
        if case .state(let base, _) = try load(name) { base } else { nil }
    }

    public func load(_ name: String) throws -> StoredState {
        let file = try fileName(name)
        return try reporting { reports throws(FileStateStoreError) in try directory.load(file, name, &reports) }
    }

    public func remove(_ name: String) throws {
        let file = try fileName(name)
        try reporting { reports throws(FileStateStoreError) in try directory.remove(file, &reports) }
    }

    public func setAside(_ name: String, reason: String) throws {
        let file = try fileName(name)
        try reporting { reports throws(FileStateStoreError) in try directory.setAside(file, name, reason, &reports) }
    }

    public func relinquish() { directory.relinquish() }

    // MARK: - The operator's mark

    public func markKilledByOperator() throws { try directory.putMark() }
    public func isMarkedKilledByOperator() throws -> Bool { try directory.hasMark() }
    public func clearKilledByOperatorMark() throws { try directory.clearMark() }

    /// Sets the mark for the process that keeps its state in `directory`. Works from any process, while that one runs
    /// or after. A file named `killed-by-operator` made there by hand has the same effect, with any content.
    public static func markKilledByOperator(directory: String) throws {
        try StateDirectory(StateDirectory.absolute(directory), kernel: HostStateKernel()).putMark()
    }

    // MARK: -

    private func fileName(_ name: String) throws(FileStateStoreError) -> StateFileName {
        guard let file = StateFileName(name) else { throw FileStateStoreError(.badName, "\"\(name)\" in \(path)") }
        return file
    }

    /// Runs `body`, then delivers the reports, once no lock is held.
    private func reporting<Result>(_ body: (inout [StateStoreReport]) throws(FileStateStoreError) -> Result)
        throws(FileStateStoreError) -> Result
    {
        var reports: [StateStoreReport] = []
        defer {
            if let report { reports.forEach(report) }
        }
        return try body(&reports)
    }
}
#endif
