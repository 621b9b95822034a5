/// The rule by which requests are cancelled one at a time while memory is short.
struct RequestCancelling {
    /// Time after which a cancelled request that goes on no longer keeps others from being cancelled.
    static let longestWait = Duration.seconds(1)

    private var last: (request: MemoryBudget, at: Duration)?
    /// True after a refusal in this episode: refusals are reported once an episode.
    private var hasRefused = false

    /// Returns true if another request may be cancelled. The turn that finds the last one ended only waits: its
    /// reading may be older than the end.
    mutating func isDue(at now: Duration) -> Bool {
        guard let (request, at) = last else { return true }
        guard request.hasEnded || now - at >= Self.longestWait else { return false }
        last = nil
        return false
    }

    mutating func began(_ request: MemoryBudget, at now: Duration) { last = (request, now) }

    /// Returns true once an episode, if nothing counts the memory of requests.
    mutating func refuses(isMetered: Bool) -> Bool {
        guard !isMetered, !hasRefused else { return false }
        hasRefused = true
        return true
    }

    mutating func reset() { self = RequestCancelling() }
}
