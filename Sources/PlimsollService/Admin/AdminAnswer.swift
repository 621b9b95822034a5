package import Plimsoll

/// An answer of an admin endpoint: one line of JSON with `ok`, the keys that belong to the request and, if `ok` is
/// false, `error`.
///
/// Clients of other versions read answers, so keys are added but never removed.
package struct AdminAnswer: Sendable, Hashable, Codable {
    /// True if the request was carried out.
    package var ok: Bool
    /// The reason for a refusal, as a sentence: the request, the target, the reason and the remedy.
    package var error: String?
    /// The reason for a refusal, for programs: a name of `Code`.
    package var code: String?
    /// The process that answers, and the name of the program. Set for `status`, `watch`, `caches`, `tasks` and
    /// `explain`.
    package var process: Int32?
    package var program: String?
    /// True if the endpoint permits changes. Set for `status` and `watch`, like the next two properties.
    package var allowsChanges: Bool?
    package var status: ManagerStatus?
    package var endpoint: AdminEndpoint.Counts?
    /// For `caches`: all registered purgeables, in the order in which they are asked to release memory.
    package var caches: [HolderStatus]?
    package var tasks: TasksStatus?
    /// For `explain`: one sentence about the state of memory and one for each purgeable that does not respond. One
    /// sentence for each action follows, oldest first.
    package var sentences: [String]?
    /// For `heap`: the census.
    package var heap: HeapStatus?
    /// For `purge`: the outcome.
    package var report: ActionStatus?
    /// For `simulate`: the simulated level and the duration.
    package var level: String?
    package var seconds: Double?
    /// For `activate`: the state that the process is in now, for example `active`.
    package var state: String?
    /// For `limit`: the name of the cache, and the new limit. For `activate`: the name of the request.
    package var name: String?
    package var limitBytes: Int?

    /// The reason why a request was not carried out, for programs.
    package enum Code: String, Sendable, Hashable, Codable {
        /// The line is not a request. Nothing was carried out.
        case malformed
        /// The endpoint does not permit changes.
        case readOnly = "read-only"
        /// The user of the client is neither the service's user nor root.
        case forbidden
        /// There are too many connections, watchers or changes at once.
        case busy
        /// There is no object of that name.
        case absent
        /// The attempt failed.
        case failed
    }

    init() { ok = true }

    init(_ refusal: AdminRefusal) {
        ok = false
        error = refusal.sentence
        code = refusal.code.rawValue
    }
}
