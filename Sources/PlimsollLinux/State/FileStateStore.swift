import Glibc
public import Plimsoll
import Synchronization

/// State kept in the files of a directory, one a name, so that a process killed at any instant leaves the old state or the new.
///
/// A write goes to a file beside, which is synchronized, takes the place of the old one, and then the directory is synchronized. Changes are appended
/// to the same file, each with its checksum. A file that is cut short, damaged or from a newer version is renamed (the last three of a name are
/// kept) and reads as absent.
///
/// Directory and files are for the owner alone. The directory, and the ones above it, are made at first use if they are missing; errors of all that
/// come from that call. It belongs to one process at a time, which holds an `flock` on the file `lock` in it from then on (until `relinquish`). Stores of the
/// same directory in one process share it.
public final class FileStateStore: StateStore {
    private let directory: StateDirectory
    private let onReport: (@Sendable (StateStoreReport) -> Void)?

    /// A store in `directory`. Nothing is done before the first call.
    ///
    /// - Parameters:
    ///   - directory: an absolute path, or one from where the process is now.
    ///   - onReport: told of states set aside and the like, on the thread of the call that found out.
    public convenience init(directory: String, onReport: (@Sendable (StateStoreReport) -> Void)? = nil) {
        self.init(StateDirectory.shared(directory), onReport: onReport)
    }

    package init(_ directory: StateDirectory, onReport: (@Sendable (StateStoreReport) -> Void)? = nil) {
        self.directory = directory
        self.onReport = onReport
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
        return try reporting { reports throws(FileStateStoreError) in try directory.append(file, name, delta, &reports) }
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

    /// Leaves the mark for the process that keeps its state in `directory`, from any process, while that one runs or after. A file of the name
    /// `killed-by-operator` made there by hand does the same, whatever is in it.
    public static func markKilledByOperator(directory: String) throws {
        try StateDirectory(StateDirectory.absolute(directory), kernel: HostStateKernel()).putMark()
    }

    // MARK: -

    private func fileName(_ name: String) throws(FileStateStoreError) -> StateFileName {
        guard let file = StateFileName(name) else { throw FileStateStoreError(.badName, "\"\(name)\" in \(path)") }
        return file
    }

    /// Reports what `body` has noted, once no lock is held.
    private func reporting<Result>(_ body: (inout [StateStoreReport]) throws(FileStateStoreError) -> Result) throws(FileStateStoreError) -> Result {
        var reports: [StateStoreReport] = []
        defer {
            if let onReport { for report in reports { onReport(report) } }
        }
        return try body(&reports)
    }
}
