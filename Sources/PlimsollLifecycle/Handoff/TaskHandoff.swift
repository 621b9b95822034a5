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

    /// Limits of the store, and the policy by which replicas resume work from it.
    var policy: TaskHandoffPolicy { get }

    /// Puts work into the store, held by `owner` for `lease`; with a lease of zero, the work is free at once.
    /// Offering again under the same id has no effect.
    ///
    /// - Returns: the work with its owner and fence.
    func offer(_ work: HandedOffTask, heldBy owner: String, for lease: Duration) async throws(TaskHandoffError)
        -> HandedOffTask

    /// Takes the oldest free work with one of `names`, for `lease`; `nil` if there is none. Work that has been
    /// taken `policy.mostAttempts` times is set aside.
    func take(_ names: [String], by owner: String, for lease: Duration) async throws(TaskHandoffError) -> HandedOffTask?

    /// Extends the claim to `lease` from now on, and stores a newer checkpoint if given.
    ///
    /// - Throws: also `lostClaim`, unless the work is held by `work.owner` under `work.fence`: another replica has the
    ///   work, or the work is done. The caller must stop.
    func renew(_ work: HandedOffTask, for lease: Duration, checkpoint: [UInt8]?) async throws(TaskHandoffError)

    /// Marks the work as done and removes it. Throws `lostClaim` like `renew`.
    func complete(_ work: HandedOffTask) async throws(TaskHandoffError)

    /// Gives the work back, with a newer checkpoint if given. Throws `lostClaim` like `renew`.
    ///
    /// - Parameters:
    ///   - work: the work, as claimed.
    ///   - checkpoint: the state from which the next replica continues; `nil` keeps the last one.
    ///   - failure: the reason for which the work failed, and the time after which the work is free again, or set aside
    ///     after the last attempt. With `nil` the replica had to stop, for `work.reason`: the work is free at once, and
    ///     the attempt does not count.
    func release(_ work: HandedOffTask, checkpoint: [UInt8]?, failure: (problem: String, after: Duration)?)
        async throws(TaskHandoffError)

    /// Returns the work that was set aside, oldest first; at most `most` work items.
    func setAside(most: Int) async throws(TaskHandoffError) -> [HandedOffTask]

    /// Frees work that was set aside, as if never taken before. Returns false if there is no such work.
    func retry(_ id: String) async throws(TaskHandoffError) -> Bool

    /// Returns the amounts of work in the store: held by no replica, held by a replica, and set aside.
    func census() async throws(TaskHandoffError) -> (waiting: Int, held: Int, setAside: Int)
}

/// The limits of a hand-over store, and the policy by which a replica resumes work of other replicas.
public struct TaskHandoffPolicy: Sendable, Hashable {
    /// Maximum size of one checkpoint: 1 MiB by default. Keep larger state in a store of its own, and put only its
    /// name into the checkpoint.
    public var checkpointLimit = ByteCount.mebibytes(1)
    /// Maximum number of pieces of work in the store, including those set aside.
    public var mostTasks = 10_000
    /// Maximum number of attempts before work is set aside. Attempts that ended because the replica had to stop do
    /// not count.
    public var mostAttempts = 5
    /// Time that the store holds claimed work without a renewal. A replica renews three times in that time, and
    /// stops the work after nine tenths of it without an answer. If a replica dies, another one continues after
    /// this time.
    public var lease = Duration.seconds(30)
    /// Time to wait if no work was available.
    public var poll = Duration.seconds(1)
    /// Longest back-off after a failure of the store. The back-off starts at a tenth of a second and doubles each
    /// time.
    public var longestPause = Duration.seconds(30)
    /// Highest level of pressure at which work is taken.
    public var whenAtMost = PressureLevel.normal
    /// Delay before failed work is retried: this delay after the first attempt, twice as long after each further
    /// one, at most an hour.
    public var retry = Duration.seconds(5)

    /// Creates the default policy.
    public init() {}

    /// Maximum length of the name of a task or an owner, in bytes of UTF-8.
    public static let nameByteCount = 200

    /// Returns the reason why `owner` cannot put `work` into the store; `nil` if allowed.
    package func problem(_ work: HandedOffTask, _ owner: String, in store: String) -> TaskHandoffError? {
        let most = Self.nameByteCount
        for (what, text) in [("name", work.name), ("id", work.id), ("owner", owner)]
        where text.isEmpty || text.utf8.count > most || text.utf8.contains(0) {
            return .refused(
                "cannot offer task \"\(work.name.prefix(40))\" to \(store) because its \(what) has \(text.utf8.count) bytes; allowed are 1 to \(most) bytes without a zero byte"
            )
        }
        return problem(work.checkpoint, of: work.name, in: store)
    }

    package func problem(_ bytes: [UInt8]?, of name: String, in store: String) -> TaskHandoffError? {
        guard let bytes, bytes.count > checkpointLimit.bytes else { return nil }
        return .refused(
            "cannot checkpoint task \"\(name)\" in \(store) because the checkpoint has \(bytes.count) bytes and \(checkpointLimit.bytes) are allowed; keep the data elsewhere, and its location in the checkpoint"
        )
    }
}

/// Work of a hand-over store: to put in, taken, or set aside.
public struct HandedOffTask: Sendable, Hashable {
    /// Identifier of the work, unique across processes.
    public var id: String
    /// Name of the task; replicas select work by this name.
    public var name: String
    /// Checkpoint to continue from; empty if the checkpoint of work set aside is damaged.
    public var checkpoint: [UInt8]
    /// The reason why the work had to stop.
    public var reason: ExpirationReason
    /// Number of attempts: those that failed, and in work that was taken this one too.
    public var attempts: Int
    /// Name of the replica that holds the work; empty for none.
    public var owner: String
    /// Fencing token, which grows with each claim. Pass the fence to systems that the work writes to, if they can
    /// reject older ones. A replica that was frozen may wake up and continue for a moment.
    public var fence: Int64
    /// The last error of work set aside.
    public var problem: String?

    /// Creates work to put into a store, or as returned by a store. The default id has 128 random bits.
    public init(
        id: String? = nil, name: String, checkpoint: [UInt8], reason: ExpirationReason, attempts: Int = 0,
        owner: String = "", fence: Int64 = 0, problem: String? = nil
    ) {
        self.id = id ?? Self.newID()
        (self.name, self.checkpoint, self.reason, self.attempts) = (name, checkpoint, reason, attempts)
        (self.owner, self.fence, self.problem) = (owner, fence, problem)
    }

    /// Returns this work, held by `owner`.
    package func held(by owner: String, fence: Int64) -> HandedOffTask {
        var work = self
        (work.owner, work.fence) = (owner, fence)
        return work
    }

    /// Returns 128 random bits.
    static func newID() -> String {
        String(UInt64.random(in: .min ... .max), radix: 36) + String(UInt64.random(in: .min ... .max), radix: 36)
    }

    /// Name of this process as an owner, constant while the process runs.
    static let ownName = newID()
}

/// The failure of a call to a hand-over store.
public struct TaskHandoffError: Error, Sendable, Hashable, CustomStringConvertible {
    package enum Kind: Sendable, Hashable { case unreachable, unanswered, refused, malformed, lostClaim }

    package var kind: Kind
    /// The request, the store, and the reason.
    public var description: String

    package init(_ kind: Kind, _ description: String) { (self.kind, self.description) = (kind, description) }

    /// Creates an error: the store could not be reached, and the call had no effect.
    public static func unreachable(_ description: String) -> Self { Self(.unreachable, description) }
    /// Creates an error: no answer came in time, or the connection was lost; the call may have had its effect.
    public static func unanswered(_ description: String) -> Self { Self(.unanswered, description) }
    /// Creates an error: the store refused, for too large or too much work, or an error of the store.
    public static func refused(_ description: String) -> Self { Self(.refused, description) }
    /// Creates an error: the answer is invalid.
    public static func malformed(_ description: String) -> Self { Self(.malformed, description) }
    /// Creates an error: the work is held by another replica, done, or set aside.
    public static func lostClaim(_ description: String) -> Self { Self(.lostClaim, description) }

    /// True if the store could not be reached: the call had no effect.
    public var isUnreachable: Bool { kind == .unreachable }
    /// True if no answer came: the call may have had its effect.
    public var isUnanswered: Bool { kind == .unanswered }
    /// True if the store refused.
    public var isRefused: Bool { kind == .refused }
    /// True if the answer is invalid.
    public var isMalformed: Bool { kind == .malformed }
    /// True if the work is held by another replica, done, or set aside: stop working on it.
    public var isLostClaim: Bool { kind == .lostClaim }

    /// Returns the error for a lost claim.
    package static func lost(_ work: HandedOffTask, _ verb: String, in store: String) -> TaskHandoffError {
        .lostClaim(
            "cannot \(verb) task \"\(work.name)\" (\(work.id)) in \(store) because \(work.owner) no longer holds it under fence \(work.fence); stop working on it"
        )
    }
}
