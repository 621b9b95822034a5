#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc

/// An error of keeping state in files, reading, or moving it.
public struct FileStateStoreError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The category of the error, which tells what can be done.
    package enum Reason: Sendable, Hashable {
        /// The file system or a quota is full (`ENOSPC`, `EDQUOT`).
        case noSpace
        /// The file system is mounted read-only (`EROFS`).
        case readOnly
        /// This process has no permission for the directory or file (`EACCES`, `EPERM`).
        case noPermission
        /// The medium failed (`EIO`).
        case inputOutput
        /// Another process keeps its state in this directory; `nil` if that process is not known.
        case heldByAnother(process: Int32?)
        /// A name that is empty or too long for a file.
        case badName
        /// More bytes than a store takes.
        case tooLarge
        /// Any other error.
        case other
    }

    package var reason: Reason
    /// True if the file system or a quota is full: the same call may succeed once there is room.
    public var isFull: Bool { reason == .noSpace }
    /// True if another process keeps its state in this directory.
    public var isHeldByAnother: Bool { if case .heldByAnother = reason { true } else { false } }
    /// The failed system call, by manual page name; empty if none was made.
    public var call: String
    /// The file of the failed call.
    public var path: String
    /// The errno; 0 if no call failed.
    public var number: Int32
    /// The state of affairs after the error.
    public var consequence: String

    /// The request, the file, the reason, the consequence, and the remedy.
    public var description: String {
        let what = call.isEmpty ? path : "cannot \(call) \(path)"
        let after = consequence.isEmpty ? "" : "; \(consequence)"
        return switch reason {
        case .heldByAnother(let process):
            "cannot use \(path) because \(process.map { "process \($0)" } ?? "another process") keeps its state in this directory"
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
}

extension FileStateStoreError {
    init(_ reason: Reason, _ path: String, consequence: String = "") {
        self.init(reason: reason, call: "", path: path, number: 0, consequence: consequence)
    }

    /// Creates the error of a failed system call.
    ///
    /// - Parameter number: the errno, positive.
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
}

/// An event in a store that the service should know of.
package enum StateStoreReport: Sendable, Hashable, CustomStringConvertible {
    /// A state that cannot be used was renamed, and reads as absent.
    case keptAside(name: String, path: String, reason: String)
    /// The last change appended to a state was incomplete: the process, or the machine, went down in the middle. The
    /// change was dropped.
    case tailDropped(name: String, byteCount: Int)
    /// Files left by interrupted writes were removed.
    case swept(count: Int)

    package var description: String {
        switch self {
        case .keptAside(let name, let path, let reason):
            "the state \"\(name)\" starts clean: \(reason); the old data is kept as \(path)"
        case .tailDropped(let name, let count):
            "dropped an incomplete last change of the state \"\(name)\" (\(count) bytes)"
        case .swept(let count): "removed \(count) files of interrupted writes"
        }
    }
}
#endif
