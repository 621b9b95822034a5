/// Decides when a shortfall may start a purge: one at a time, and not again after one that proved useless (T21, K30),
/// unless the danger has grown since.
struct PurgeGovernor: Sendable {
    /// Whether a purge is running.
    private(set) var isRunning = false
    /// Whether the last purge brought nothing back.
    private(set) var lastWasUseless = false
    private var end = Duration.zero
    private var holdOff = Duration.zero
    private var trim = Duration.zero
    private var availableThen: ByteCount?

    /// How much less must be available, as a share of what a purge left, to try again before the time.
    static let worsening = 0.75

    /// Whether a purge may start now; if so, it counts as running until `finished`.
    ///
    /// Trimming the heap stops other threads' allocations, so it may take a twentieth of the time, at the critical level a fifth.
    mutating func start(at now: Duration, level: PressureLevel, available: ByteCount?) -> Bool {
        if isRunning { return false }
        let rest = max(holdOff, trim * (level == .critical ? 4 : 19))
        if now - end < rest {
            guard let available, let availableThen, available < availableThen * Self.worsening else { return false }
        }
        isRunning = true
        return true
    }

    /// A purge came to its end.
    ///
    /// - Parameters:
    ///   - report: what it brought.
    ///   - available: what can be allocated after it.
    mutating func finished(_ report: ActionReport, at now: Duration, available: ByteCount?) {
        isRunning = false
        // What volatile memory brought says nothing about the next pass: it was available before.
        let fall = report.heapFall
        // Where nothing was let go of, the heap may still have had something to give.
        let nothing = report.released < min(.mebibytes(1), report.asked)
        lastWasUseless = fall < (nothing ? .mebibytes(1) : report.released * 0.1)
        holdOff = !lastWasUseless ? .zero : nothing ? .seconds(30) : max(.seconds(5), report.took * 20)
        trim = report.trim
        end = now
        availableThen = available
    }

    /// A purge got stuck in a holder and was given up; the next one goes around it.
    mutating func abandoned() { isRunning = false }

    /// Memory is plentiful: what was learnt no longer holds.
    mutating func reset() {
        lastWasUseless = false
        holdOff = .zero
        trim = .zero
    }
}
