import Glibc

/// Why state could not be kept in files, read from them, or moved.
public struct FileStateStoreError: Error, Sendable, Hashable, CustomStringConvertible {
    /// What can be done about it.
    public enum Reason: Sendable, Hashable {
        /// The file system or a quota is full (`ENOSPC`, `EDQUOT`).
        case noSpace
        /// The file system is mounted read-only (`EROFS`).
        case readOnly
        /// The directory or file is not for this process (`EACCES`, `EPERM`).
        case noPermission
        /// The medium failed (`EIO`).
        case inputOutput
        /// Another process keeps its state in this directory; `nil` if it has not said which.
        case heldByAnother(process: Int32?)
        /// A name that is empty or too long to be a file's.
        case badName
        /// More bytes than a store takes.
        case tooLarge
        /// Anything else.
        case other
    }

    /// What can be done about it.
    public var reason: Reason
    /// The system call that failed, as its manual page is called; empty if none was made.
    public var call: String
    /// The file that it was asked of.
    public var path: String
    /// The errno; 0 if no call failed.
    public var number: Int32
    /// What holds now.
    public var consequence: String

    /// What was asked, of what, why not, what holds now, what to do.
    public var description: String {
        let what = call.isEmpty ? path : "\(call) \(path)"
        let after = consequence.isEmpty ? "" : "; \(consequence)"
        return switch reason {
        case .heldByAnother(let process):
            "\(path) is held by \(process.map { "process \($0)" } ?? "another process"), which keeps its state in this directory"
                + "\(after); give each process a directory of its own, or end that one"
        case .badName: "\(path): a state's name must have 1 to \(StateFileName.longest) bytes once it is escaped"
        case .tooLarge: "\(path): a state has at most \(StateDirectory.mostBytes) bytes\(after)"
        case .noSpace: "\(what): \(text)\(after); free some space there, or keep the state elsewhere"
        case .readOnly: "\(what): \(text)\(after); keep the state on a file system that can be written to"
        case .noPermission: "\(what): \(text)\(after); the directory must belong to the user this process runs as"
        case .inputOutput, .other: "\(what): \(text)\(after)"
        }
    }

    private var text: String { String(cString: strerror(number)) }

    init(_ reason: Reason, _ path: String, consequence: String = "") {
        self.init(reason: reason, call: "", path: path, number: 0, consequence: consequence)
    }

    /// - Parameter number: positive.
    init(_ call: String, _ path: String, number: Int32, consequence: String = "") {
        let reason: Reason =
            switch number {
            case ENOSPC, EDQUOT: .noSpace
            case EROFS: .readOnly
            case EACCES, EPERM: .noPermission
            case EIO: .inputOutput
            default: .other
            }
        self.init(reason: reason, call: call, path: path, number: number, consequence: consequence)
    }

    private init(reason: Reason, call: String, path: String, number: Int32, consequence: String) {
        self.reason = reason
        self.call = call
        self.path = path
        self.number = number
        self.consequence = consequence
    }
}

/// Something a store did that somebody should know of.
public enum StateStoreReport: Sendable, Hashable, CustomStringConvertible {
    /// A state that cannot be used was renamed, and reads as absent.
    case keptAside(name: String, path: String, reason: String)
    /// The last change appended to a state was not whole: the process, or the machine, went down in the middle. It was dropped.
    case tailDropped(name: String, byteCount: Int)
    /// Files that interrupted writes had left were removed.
    case swept(count: Int)

    public var description: String {
        switch self {
        case .keptAside(let name, let path, let reason): "the state \"\(name)\" starts clean: \(reason); it is kept as \(path)"
        case .tailDropped(let name, let count): "the last change of the state \"\(name)\" was not whole (\(count) bytes) and was dropped"
        case .swept(let count): "\(count) files that interrupted writes had left were removed"
        }
    }
}
