public import Plimsoll

/// What an admin endpoint answers: a line of JSON with the keys that belong to the request, `ok`, and if that is false, `error`.
///
/// Programs of other versions read it: keys are added, never taken away.
public struct AdminAnswer: Sendable, Hashable, Codable {
    /// Whether what was asked was done.
    public var ok: Bool
    /// Why not, in a sentence: what was asked, of what, why not, what to do.
    public var error: String?
    /// Why not, for programs: a name of `Code`.
    public var code: String?
    /// The process that answers, and the name of its program. Of `status`, `watch`, `caches`, `tasks` and `explain`.
    public var process: Int32?
    public var program: String?
    /// Whether the endpoint lets changes through. Of `status` and `watch`, as are the next two.
    public var allowsChanges: Bool?
    public var status: ManagerStatus?
    public var endpoint: AdminEndpoint.Counts?
    /// Of `caches`: what is registered, in the order in which it is asked.
    public var caches: [HolderStatus]?
    /// Of `tasks`.
    public var tasks: TasksStatus?
    /// Of `explain`: the state of memory in a sentence, one for each holder that doesn't answer, then one an action, oldest first.
    public var sentences: [String]?
    /// Of `purge`: what was done.
    public var report: ActionStatus?
    /// Of `simulate`: what is pretended from now on, and for how long.
    public var level: String?
    public var seconds: Double?
    /// Of `activate`: the state that the process is in now, for example `active`.
    public var state: String?
    /// Of `limit`: the cache, and the most it holds from now on; of `activate`: what was asked for.
    public var name: String?
    public var limitBytes: Int?

    /// Why a request was not carried out, for programs.
    public enum Code: String, Sendable, Hashable, Codable {
        /// The line is no request. It was not carried out, not even in part.
        case malformed
        /// The endpoint lets no changes through.
        case readOnly = "read-only"
        /// The user at the other end is neither the service's nor root.
        case forbidden
        /// There are too many connections, watchers or changes at once.
        case busy
        /// What was named is not there.
        case absent
        /// It was tried and failed.
        case failed
    }

    init() { ok = true }

    init(_ refusal: AdminRefusal) {
        ok = false
        error = refusal.sentence
        code = refusal.code.rawValue
    }
}
