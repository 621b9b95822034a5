import Glibc
import PlimsollLinux

/// Where an admin endpoint listens if nobody says otherwise.
public enum AdminPath {
    /// The name of the socket in a directory that is the service's own.
    public static let name = "plimsoll.sock"

    /// `plimsoll.sock` in the first directory of `$RUNTIME_DIRECTORY`, which systemd sets for `RuntimeDirectory=`; otherwise `plimsoll-PID.sock` in
    /// `$XDG_RUNTIME_DIR`.
    ///
    /// - Throws: `AdminError` if neither variable names a directory by an absolute path.
    public static func standard(environment: (String) -> String? = Self.variable, process: Int32? = nil) throws(AdminError) -> String {
        // systemd.exec(5): several directories are separated by colons.
        if let directory = environment("RUNTIME_DIRECTORY")?.split(separator: ":").first {
            return try place(String(directory), name, "RUNTIME_DIRECTORY")
        }
        if let directory = environment("XDG_RUNTIME_DIR"), !directory.isEmpty {
            return try place(directory, "plimsoll-\(process ?? getpid()).sock", "XDG_RUNTIME_DIR")
        }
        throw AdminError(
            .path,
            """
            cannot choose a place for the admin socket, as neither $RUNTIME_DIRECTORY nor $XDG_RUNTIME_DIR is set; set RuntimeDirectory= in the unit, or \
            PLIMSOLL_ADMIN_SOCKET to a path or to off, or give AdminEndpoint a path
            """
        )
    }

    private static func place(_ directory: String, _ name: String, _ variable: String) throws(AdminError) -> String {
        guard directory.hasPrefix("/") else {
            throw AdminError(.path, "$\(variable) is \"\(directory)\", which is no absolute path: set it to one, or give AdminEndpoint a path")
        }
        return (directory.hasSuffix("/") ? String(directory.dropLast()) : directory) + "/" + name
    }

    /// The value of an environment variable.
    public static func variable(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }
}

/// An admin endpoint that can't be started, or can't be reached.
public struct AdminError: Error, Sendable, Hashable, CustomStringConvertible {
    /// What kind of failure.
    public enum Kind: Sendable, Hashable {
        /// There is no path, or none that a socket can have.
        case path
        /// Something else lies there: another process's socket, or no socket at all.
        case occupied
        /// Nobody listens there.
        case absent
        /// Only its owner and root may connect.
        case forbidden
        /// It did not answer in time, or in a way that can't be read.
        case silent
        /// Anything else.
        case failed
    }

    public let kind: Kind
    /// What was asked of what, why not, and what to do.
    public let description: String

    init(_ kind: Kind, _ description: String) { (self.kind, self.description) = (kind, description) }

    init(_ error: PrivateSocketError) {
        let kind: Kind =
            switch error.kind {
            case .path: .path
            case .occupied: .occupied
            case .absent: .absent
            case .forbidden: .forbidden
            case .failed: .failed
            }
        self.init(kind, error.description)
    }
}
