import CPlimsollProcess
import PlimsollLinux

/// The default places of an admin endpoint's socket.
package enum AdminPath {
    /// The name of the socket in a directory that belongs to the service.
    package static let name = "plimsoll.sock"

    /// Returns `plimsoll.sock` in the first directory of `$RUNTIME_DIRECTORY`, which systemd sets for
    /// `RuntimeDirectory=`. Without that variable, returns `plimsoll-PID.sock` in `$XDG_RUNTIME_DIR`.
    ///
    /// - Throws: `AdminError` if neither variable names a directory by an absolute path.
    package static func standard(environment: (String) -> String? = Self.variable, process: Int32? = nil)
        throws(AdminError) -> String
    {
        // systemd.exec(5): colons separate several directories.
        if let directory = environment("RUNTIME_DIRECTORY")?.split(separator: ":").first {
            return try place(String(directory), name, "RUNTIME_DIRECTORY")
        }
        if let directory = environment("XDG_RUNTIME_DIR"), !directory.isEmpty {
            return try place(directory, "plimsoll-\(process ?? plimsoll_process_id()).sock", "XDG_RUNTIME_DIR")
        }
        throw AdminError(
            .path,
            """
            cannot choose a place for the admin socket because neither $RUNTIME_DIRECTORY nor $XDG_RUNTIME_DIR is set; set RuntimeDirectory= in the unit, or \
            PLIMSOLL_ADMIN_SOCKET to a path or to off, or give AdminEndpoint a path
            """
        )
    }

    private static func place(_ directory: String, _ name: String, _ variable: String) throws(AdminError) -> String {
        guard directory.hasPrefix("/") else {
            throw AdminError(
                .path,
                "$\(variable) is \"\(directory)\", which is not an absolute path; set it to one, or give AdminEndpoint a path"
            )
        }
        return (directory.hasSuffix("/") ? String(directory.dropLast()) : directory) + "/" + name
    }

    /// Returns the value of an environment variable.
    package static func variable(_ name: String) -> String? { plimsoll_environment(name).map { String(cString: $0) } }
}

/// An error of an admin endpoint that cannot start or cannot be reached.
public struct AdminError: Error, Sendable, Hashable, CustomStringConvertible {
    package enum Kind: Sendable, Hashable {
        /// There is no path, or the path is not valid for a socket.
        case path
        /// The path is in use: by the socket of another process, or by a file that is not a socket.
        case occupied
        /// No process listens at the path.
        case absent
        /// Only the owner of the socket and root may connect.
        case forbidden
        /// The endpoint did not answer in time, or the answer is unreadable.
        case silent
        /// Any other failure.
        case failed
    }

    package let kind: Kind
    /// True if the path is in use: by the socket of another process, or by a file that is not a socket.
    public var isOccupied: Bool { kind == .occupied }
    /// The request, the target, the reason of the failure and the remedy.
    public let description: String

    init(_ kind: Kind, _ description: String) { (self.kind, self.description) = (kind, description) }

    #if canImport(Glibc) && !PLIMSOLL_INERT
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
    #endif
}
