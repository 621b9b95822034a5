/// Where a background task that had to stop leaves its checkpoint, for another replica of the service to go on from: a table that several processes see.
///
/// Each piece of work is held by at most one replica at a time, for the length of a lease that it renews. Who takes it gets a number, the *fence*, that grows with
/// each taking; what is done under an older one is refused. Work is done at least once: a replica that dies, or whose last word is lost, has it done again from its
/// last checkpoint. Work that was taken too often without being done is set aside, so that what kills a replica doesn't kill all of them.
///
/// Calls end by their own time limits, and are not cut short when the calling task is cancelled: the last word of a task that is being stopped must get through.
///
/// `SQLiteTaskHandoff` (PlimsollGRDB) and `PostgreSQLTaskHandoff` (PlimsollPostgreSQL) are two.
public protocol TaskHandoff: Sendable {
    /// How reports name it: what it is and where.
    var name: String { get }

    /// Its bounds.
    var limits: TaskHandoffLimits { get }

    /// Puts work there, held by `owner` for `lease`: zero leaves it free at once. Offering again under one id changes nothing.
    func offer(_ offer: TaskHandoffOffer, heldBy owner: String, for lease: Duration) async throws(TaskHandoffError) -> TaskHandoffClaim

    /// Takes the oldest work of one of `names` that nobody holds, for `lease`; `nil` if there is none. Work that has been taken `limits.attempts` times is set aside.
    func take(_ names: [String], by owner: String, for lease: Duration) async throws(TaskHandoffError) -> HandedOffTask?

    /// Holds it for `lease` from now on, with a newer checkpoint if there is one.
    ///
    /// - Throws: also `lostClaim`: somebody else has it, or it is done; stop.
    func renew(_ claim: TaskHandoffClaim, for lease: Duration, checkpoint: [UInt8]?) async throws(TaskHandoffError)

    /// The work is done, and gone. Throws `lostClaim` as `renew`.
    func complete(_ claim: TaskHandoffClaim) async throws(TaskHandoffError)

    /// Gives it back, with a newer checkpoint if there is one. Throws `lostClaim` as `renew`.
    func release(_ claim: TaskHandoffClaim, checkpoint: [UInt8]?, _ release: TaskHandoffRelease) async throws(TaskHandoffError)

    /// What was set aside, oldest first; at most `most`.
    func setAside(most: Int) async throws(TaskHandoffError) -> [SetAsideTask]

    /// Makes work that was set aside free again, as if it had never been taken; false if it isn't there.
    func retry(_ id: String) async throws(TaskHandoffError) -> Bool

    /// How much there is.
    func census() async throws(TaskHandoffError) -> TaskHandoffCensus
}

/// Bounds of a hand-over store.
public struct TaskHandoffLimits: Sendable, Hashable {
    /// Of one checkpoint: 1 MiB by default. What is larger belongs into a store of its own, and its name into the checkpoint.
    public var checkpoint = ByteCount.mebibytes(1)
    /// How many pieces of work lie there at most, those set aside included.
    public var count = 10_000
    /// How often work is taken before it is set aside. Takings that ended because the replica had to stop don't count.
    public var attempts = 5

    /// The defaults.
    public init() {}

    /// The longest name of a task or an owner, in bytes of UTF-8.
    public static let nameByteCount = 200

    /// Why `offer` cannot be put there by `owner`; `nil` if it can.
    package func problem(_ offer: TaskHandoffOffer, _ owner: String, in store: String) -> TaskHandoffError? {
        let most = Self.nameByteCount
        for (what, text) in [("name", offer.name), ("id", offer.id), ("owner", owner)]
        where text.isEmpty || text.utf8.count > most || text.utf8.contains(0) {
            return TaskHandoffError(
                .refused,
                "offer of task \"\(offer.name.prefix(40))\" to \(store): its \(what) has \(text.utf8.count) bytes, allowed are 1 to \(most) without a zero"
            )
        }
        return problem(offer.checkpoint, of: offer.name, in: store)
    }

    package func problem(_ bytes: [UInt8]?, of name: String, in store: String) -> TaskHandoffError? {
        guard let bytes, bytes.count > checkpoint.bytes else { return nil }
        return TaskHandoffError(
            .refused,
            "checkpoint of task \"\(name)\" for \(store): it has \(bytes.count) bytes, allowed are \(checkpoint.bytes); keep what it is about elsewhere, and its place here"
        )
    }
}

/// Work to be put into a hand-over store.
public struct TaskHandoffOffer: Sendable, Hashable {
    /// Tells it from all other work, also across processes.
    public var id: String
    /// What the task is called; who resumes chooses by it.
    public var name: String
    /// Where to go on from.
    public var checkpoint: [UInt8]
    /// Why it had to stop.
    public var reason: ExpirationReason
    /// How often it was begun in vain before.
    public var attempts: Int

    /// An offer with an id of 128 random bits.
    public init(name: String, checkpoint: [UInt8], reason: ExpirationReason, attempts: Int = 0, id: String? = nil) {
        self.id = id ?? String(UInt64.random(in: .min ... .max), radix: 36) + String(UInt64.random(in: .min ... .max), radix: 36)
        (self.name, self.checkpoint, self.reason, self.attempts) = (name, checkpoint, reason, attempts)
    }
}

/// Who holds work, and by which taking.
public struct TaskHandoffClaim: Sendable, Hashable {
    /// The work's.
    public var id: String
    /// What the task is called.
    public var name: String
    /// Who holds it.
    public var owner: String
    /// Grows with each taking. Give it to what the work writes to, if that can refuse older ones: a replica that stood still may wake up and go on for a moment.
    public var fence: Int64

    /// A claim as a store grants it.
    public init(id: String, name: String, owner: String, fence: Int64) { (self.id, self.name, self.owner, self.fence) = (id, name, owner, fence) }
}

/// Work that was taken.
public struct HandedOffTask: Sendable, Hashable {
    /// To be shown with each call about it.
    public var claim: TaskHandoffClaim
    /// Where to go on from.
    public var checkpoint: [UInt8]
    /// Why it had to stop.
    public var reason: ExpirationReason
    /// The how many-th time it is taken, from 1 on.
    public var attempt: Int

    /// Work as a store gives it out.
    public init(claim: TaskHandoffClaim, checkpoint: [UInt8], reason: ExpirationReason, attempt: Int) {
        (self.claim, self.checkpoint, self.reason, self.attempt) = (claim, checkpoint, reason, attempt)
    }
}

/// How a taking ends without the work being done.
public enum TaskHandoffRelease: Sendable, Hashable {
    /// The replica had to stop: free at once, and the taking doesn't count.
    case expired(ExpirationReason)
    /// The work failed, for that reason: free again after that time, or set aside if it was the last attempt.
    case failed(String, after: Duration)
}

/// Work that is offered to nobody any more.
public struct SetAsideTask: Sendable, Hashable {
    /// The work's.
    public var id: String
    /// What the task is called.
    public var name: String
    /// Where it would have to go on from; empty if that is damaged.
    public var checkpoint: [UInt8]
    /// How often it was taken.
    public var attempts: Int
    /// What went wrong last.
    public var problem: String

    /// Work as a store tells of it.
    public init(id: String, name: String, checkpoint: [UInt8], attempts: Int, problem: String) {
        (self.id, self.name, self.checkpoint, self.attempts, self.problem) = (id, name, checkpoint, attempts, problem)
    }
}

/// How much work lies in a hand-over store.
public struct TaskHandoffCensus: Sendable, Hashable {
    /// Held by nobody.
    public var waiting: Int
    /// Held by a replica.
    public var held: Int
    /// Set aside.
    public var setAside: Int

    /// Numbers as a store tells them.
    public init(waiting: Int, held: Int, setAside: Int) { (self.waiting, self.held, self.setAside) = (waiting, held, setAside) }
}

/// A hand-over store that did not do what it was asked.
public struct TaskHandoffError: Error, Sendable, Hashable, CustomStringConvertible {
    /// In which way.
    public enum Kind: Sendable, Hashable {
        /// It could not be reached: nothing was done.
        case unreachable
        /// It did not answer in time, or the connection was lost: it may have been done.
        case unanswered
        /// It said no: too large, full, or an error of its own.
        case refused
        /// What came back makes no sense.
        case nonsense
        /// The work is held by somebody else, done, or set aside.
        case lostClaim
    }

    /// In which way.
    public var kind: Kind
    /// What was asked of which store, and why not.
    public var description: String

    /// An error that says so.
    public init(_ kind: Kind, _ description: String) { (self.kind, self.description) = (kind, description) }

    /// That `claim` holds no longer.
    package static func lost(_ claim: TaskHandoffClaim, _ verb: String, in store: String) -> TaskHandoffError {
        TaskHandoffError(
            .lostClaim,
            "\(verb) task \"\(claim.name)\" (\(claim.id)) in \(store): it is not held by \(claim.owner) under fence \(claim.fence) any more; stop working on it"
        )
    }
}
