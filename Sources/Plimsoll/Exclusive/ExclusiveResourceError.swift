/// An exclusive resource that cannot be had or used.
public struct ExclusiveResourceError: Error, Sendable, Hashable, CustomStringConvertible {
    /// Why not.
    public enum Reason: Sendable, Hashable {
        /// Another of that name is registered.
        case duplicateName
        /// The order of release would go round: each is to be released after the next, the last after the first.
        case cycle([String])
        /// The process is in the background, or on its way there (C51).
        case inBackground
        /// It was given back, or never taken.
        case notHeld
        /// Its lease has run out, or may have.
        case leaseExpired
        /// The process has just run again after a freeze or a sleep and has not taken stock yet.
        case unsettled
        /// It was given up and taken again since.
        case stale(epoch: UInt64, current: UInt64)
        /// Nothing says how to take it.
        case cannotBeTaken
    }

    /// Which.
    public var resource: String
    /// Why not.
    public var reason: Reason

    public var description: String {
        switch reason {
        case .duplicateName: "exclusive resource \(resource) cannot be added: there is one of that name; give it another, or cancel the first"
        case .cycle(let names):
            "exclusive resource \(resource) cannot be added: its order of release goes round, \(names.joined(separator: " after ")); drop one `after:`"
        case .inBackground: "exclusive resource \(resource) may not be used or taken in the background; do it after the return to the foreground"
        case .notHeld: "exclusive resource \(resource) is not held; take it with acquire()"
        case .leaseExpired: "the lease of exclusive resource \(resource) has run out; take it again with acquire(), and renew it in time"
        case .unsettled: "exclusive resource \(resource) cannot be used: the process did not run for a while and has not taken stock yet; try again"
        case .stale(let epoch, let current):
            "exclusive resource \(resource) is in epoch \(current), and this work began in \(epoch): others may have held it meanwhile; begin anew"
        case .cannotBeTaken: "exclusive resource \(resource) cannot be taken: it has no `reacquire:`; give it one"
        }
    }
}
