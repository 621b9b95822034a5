public import Plimsoll

/// A store for the checkpoints of background tasks that had to stop, from which another replica of the service can
/// continue: a table visible to several processes.
///
/// At most one replica at a time holds each piece of work, for a lease that the replica renews. Each claim gets a
/// fencing token, the *fence*, which grows with each claim. The store rejects calls with an older fence. Work is
/// done at least once. If a replica dies, or if its final call is lost, the work is repeated from the last
/// checkpoint. Work that was taken too often without success is set aside, so that work that kills one replica does
/// not kill all of them.
///
/// Calls end by their own time limits, and ignore cancellation of the calling task: the final call of a task that
/// is being stopped must get through.
///
/// `SQLiteTaskHandoff` (PlimsollGRDB) and `PostgreSQLTaskHandoff` (PlimsollPostgreSQL) are two implementations.
public protocol TaskHandoff: Sendable {
    /// Name of the store in reports: its kind and location.
    var name: String { get }

    /// Limits of the store.
    var limits: TaskHandoffLimits { get }

    /// Puts work into the store, held by `owner` for `lease`; with a lease of zero, the work is free at once.
    /// Offering again under the same id has no effect.
    func offer(_ offer: TaskHandoffOffer, heldBy owner: String, for lease: Duration) async throws(TaskHandoffError)
        -> TaskHandoffClaim

    /// Takes the oldest free work with one of `names`, for `lease`; `nil` if there is none. Work that has been
    /// taken `limits.attempts` times is set aside.
    func take(_ names: [String], by owner: String, for lease: Duration) async throws(TaskHandoffError) -> HandedOffTask?

    /// Extends the claim to `lease` from now on, and stores a newer checkpoint if given.
    ///
    /// - Throws: also `lostClaim`, if another replica has the work, or the work is done; the caller must stop.
    func renew(_ claim: TaskHandoffClaim, for lease: Duration, checkpoint: [UInt8]?) async throws(TaskHandoffError)

    /// Marks the work as done and removes it. Throws `lostClaim` like `renew`.
    func complete(_ claim: TaskHandoffClaim) async throws(TaskHandoffError)

    /// Gives the work back, with a newer checkpoint if given. Throws `lostClaim` like `renew`.
    func release(_ claim: TaskHandoffClaim, checkpoint: [UInt8]?, _ release: TaskHandoffRelease)
        async throws(TaskHandoffError)

    /// Returns the work that was set aside, oldest first; at most `most` pieces.
    func setAside(most: Int) async throws(TaskHandoffError) -> [SetAsideTask]

    /// Frees work that was set aside, as if never taken before. Returns false if there is no such work.
    func retry(_ id: String) async throws(TaskHandoffError) -> Bool

    /// Returns the amounts of work in the store.
    func census() async throws(TaskHandoffError) -> TaskHandoffCensus
}

/// Limits of a hand-over store.
public struct TaskHandoffLimits: Sendable, Hashable {
    /// Maximum size of one checkpoint: 1 MiB by default. Keep larger state in a store of its own, and put only its
    /// name into the checkpoint.
    public var checkpoint = ByteCount.mebibytes(1)
    /// Maximum number of pieces of work in the store, including those set aside.
    public var count = 10_000
    /// Maximum number of attempts before work is set aside. Attempts that ended because the replica had to stop do
    /// not count.
    public var attempts = 5

    /// Creates the default limits.
    public init() {}

    /// Maximum length of the name of a task or an owner, in bytes of UTF-8.
    public static let nameByteCount = 200

    /// Returns the reason why `owner` cannot put `offer` into the store; `nil` if allowed.
    package func problem(_ offer: TaskHandoffOffer, _ owner: String, in store: String) -> TaskHandoffError? {
        let most = Self.nameByteCount
        for (what, text) in [("name", offer.name), ("id", offer.id), ("owner", owner)]
        where text.isEmpty || text.utf8.count > most || text.utf8.contains(0) {
            return TaskHandoffError(
                .refused,
                "cannot offer task \"\(offer.name.prefix(40))\" to \(store) because its \(what) has \(text.utf8.count) bytes; allowed are 1 to \(most) bytes without a zero byte"
            )
        }
        return problem(offer.checkpoint, of: offer.name, in: store)
    }

    package func problem(_ bytes: [UInt8]?, of name: String, in store: String) -> TaskHandoffError? {
        guard let bytes, bytes.count > checkpoint.bytes else { return nil }
        return TaskHandoffError(
            .refused,
            "cannot checkpoint task \"\(name)\" in \(store) because the checkpoint has \(bytes.count) bytes and \(checkpoint.bytes) are allowed; keep the data elsewhere, and its location in the checkpoint"
        )
    }
}

/// Work to put into a hand-over store.
public struct TaskHandoffOffer: Sendable, Hashable {
    /// Identifier of the work, unique across processes.
    public var id: String
    /// Name of the task; replicas select work by this name.
    public var name: String
    /// Checkpoint to continue from.
    public var checkpoint: [UInt8]
    /// The reason why the work had to stop.
    public var reason: ExpirationReason
    /// Number of earlier attempts that failed.
    public var attempts: Int

    /// Creates an offer. The default id has 128 random bits.
    public init(name: String, checkpoint: [UInt8], reason: ExpirationReason, attempts: Int = 0, id: String? = nil) {
        self.id =
            id ?? String(UInt64.random(in: .min ... .max), radix: 36)
            + String(UInt64.random(in: .min ... .max), radix: 36)
        (self.name, self.checkpoint, self.reason, self.attempts) = (name, checkpoint, reason, attempts)
    }
}

/// The holder of work, and the fence of the claim.
public struct TaskHandoffClaim: Sendable, Hashable {
    /// Identifier of the work.
    public var id: String
    /// Name of the task.
    public var name: String
    /// Name of the holder.
    public var owner: String
    /// Fencing token, which grows with each claim. Pass the fence to systems that the work writes to, if they can
    /// reject older ones. A replica that was frozen may wake up and continue for a moment.
    public var fence: Int64

    /// Creates a claim, as granted by a store.
    public init(id: String, name: String, owner: String, fence: Int64) {
        (self.id, self.name, self.owner, self.fence) = (id, name, owner, fence)
    }
}

/// Work that was taken.
public struct HandedOffTask: Sendable, Hashable {
    /// Claim to pass to each call about the work.
    public var claim: TaskHandoffClaim
    /// Checkpoint to continue from.
    public var checkpoint: [UInt8]
    /// The reason why the work had to stop.
    public var reason: ExpirationReason
    /// Number of this attempt, from 1 on.
    public var attempt: Int

    /// Creates work, as returned by a store.
    public init(claim: TaskHandoffClaim, checkpoint: [UInt8], reason: ExpirationReason, attempt: Int) {
        (self.claim, self.checkpoint, self.reason, self.attempt) = (claim, checkpoint, reason, attempt)
    }
}

/// The reason why a claim ends without the work being done.
public enum TaskHandoffRelease: Sendable, Hashable {
    /// The replica had to stop: the work is free at once, and the attempt does not count.
    case expired(ExpirationReason)
    /// The work failed, for the given reason. The work is free again after that time, or set aside after the last
    /// attempt.
    case failed(String, after: Duration)
}

/// Work that is no longer offered to any replica.
public struct SetAsideTask: Sendable, Hashable {
    /// Identifier of the work.
    public var id: String
    /// Name of the task.
    public var name: String
    /// Checkpoint to continue from; empty if the checkpoint is damaged.
    public var checkpoint: [UInt8]
    /// Number of attempts.
    public var attempts: Int
    /// The last error.
    public var problem: String

    /// Creates set-aside work, as reported by a store.
    public init(id: String, name: String, checkpoint: [UInt8], attempts: Int, problem: String) {
        (self.id, self.name, self.checkpoint, self.attempts, self.problem) = (id, name, checkpoint, attempts, problem)
    }
}

/// The amounts of work in a hand-over store.
public struct TaskHandoffCensus: Sendable, Hashable {
    /// Work held by no replica.
    public var waiting: Int
    /// Work held by a replica.
    public var held: Int
    /// Work set aside.
    public var setAside: Int

    /// Creates a census, as reported by a store.
    public init(waiting: Int, held: Int, setAside: Int) {
        (self.waiting, self.held, self.setAside) = (waiting, held, setAside)
    }
}

/// The failure of a call to a hand-over store.
public struct TaskHandoffError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The kind of failure.
    public enum Kind: Sendable, Hashable {
        /// The store could not be reached: the call had no effect.
        case unreachable
        /// The store did not answer in time, or the connection was lost: the call may have had its effect.
        case unanswered
        /// The store refused: too large, full, or an error of the store.
        case refused
        /// The answer is invalid.
        case nonsense
        /// The work is held by another replica, done, or set aside.
        case lostClaim
    }

    /// The kind of failure.
    public var kind: Kind
    /// The request, the store, and the reason.
    public var description: String

    /// Creates an error.
    public init(_ kind: Kind, _ description: String) { (self.kind, self.description) = (kind, description) }

    /// Returns the error for a lost claim.
    package static func lost(_ claim: TaskHandoffClaim, _ verb: String, in store: String) -> TaskHandoffError {
        TaskHandoffError(
            .lostClaim,
            "cannot \(verb) task \"\(claim.name)\" (\(claim.id)) in \(store) because \(claim.owner) no longer holds it under fence \(claim.fence); stop working on it"
        )
    }
}
