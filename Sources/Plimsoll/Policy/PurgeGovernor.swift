/// Decides when a shortfall may start a purge: one at a time, and not again after one that proved useless (T21, K30),
/// unless the danger has grown since.
struct PurgeGovernor: Sendable {
    /// Whether a purge is running.
    private(set) var isRunning = false
    /// Whether the last purge brought nothing back.
    private(set) var lastWasUseless = false
    private var heldUntil = Duration.zero
    private var availableThen: ByteCount?

    /// How much less must be available, as a share of what a useless purge left, to try again before the time.
    static let worsening = 0.75

    /// Whether a purge may start now; if so, it counts as running until `finished`.
    mutating func start(at now: Duration, available: ByteCount?) -> Bool {
        if isRunning { return false }
        if lastWasUseless, now < heldUntil {
            guard let available, let availableThen, available < availableThen * Self.worsening else { return false }
        }
        isRunning = true
        return true
    }

    /// A purge came to its end.
    ///
    /// - Parameters:
    ///   - released: what holders said they let go of.
    ///   - fall: measured fall of resident memory or of the group, the larger.
    ///   - took: its duration.
    mutating func finished(released: ByteCount, fall: ByteCount, took: Duration, at now: Duration, available: ByteCount?) {
        isRunning = false
        let nothing = released < .mebibytes(1)
        lastWasUseless = nothing || fall < released * 0.1
        availableThen = available
        heldUntil = now + (nothing ? .seconds(30) : max(.seconds(5), took * 20))
    }

    /// A purge got stuck in a holder and was given up; the next one goes around it.
    mutating func abandoned() { isRunning = false }

    /// Memory is plentiful: what was learnt no longer holds.
    mutating func reset() {
        lastWasUseless = false
        heldUntil = .zero
    }
}
