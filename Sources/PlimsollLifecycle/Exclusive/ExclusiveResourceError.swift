/// An error of an exclusive resource that cannot be acquired or used.
public struct ExclusiveResourceError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The reason for the error.
    public enum Reason: Sendable, Hashable {
        /// Another resource of that name is registered.
        case duplicateName
        /// The order of release is circular: each resource is to be released after the next, the last after the
        /// first.
        case cycle([String])
        /// The process is in the background, or entering the background (C51).
        case inBackground
        /// The resource was released, or never acquired.
        case notHeld
        /// The lease has run out, or may have.
        case leaseExpired
        /// The process has just run again after a freeze or a sleep and has not taken stock yet.
        case unsettled
        /// The resource was lost or released, and acquired again since.
        case stale(epoch: UInt64, current: UInt64)
        /// The resource has no `reacquire:`.
        case cannotBeTaken
    }

    /// Name of the resource.
    public var resource: String
    /// The reason for the error.
    public var reason: Reason

    public var description: String {
        switch reason {
        case .duplicateName:
            "exclusive resource \(resource) cannot be added: there is one of that name; give it another, or cancel the first"
        case .cycle(let names):
            "exclusive resource \(resource) cannot be added: its order of release goes round, \(names.joined(separator: " after ")); drop one `after:`"
        case .inBackground:
            "exclusive resource \(resource) may not be used or taken in the background; do it after the return to the foreground"
        case .notHeld: "exclusive resource \(resource) is not held; take it with acquire()"
        case .leaseExpired:
            "the lease of exclusive resource \(resource) has run out; take it again with acquire(), and renew it in time"
        case .unsettled:
            "exclusive resource \(resource) cannot be used: the process did not run for a while and has not taken stock yet; try again"
        case .stale(let epoch, let current):
            "exclusive resource \(resource) is in epoch \(current), and this work began in \(epoch): others may have held it meanwhile; begin anew"
        case .cannotBeTaken: "exclusive resource \(resource) cannot be taken: it has no `reacquire:`; give it one"
        }
    }
}
