/// Decides when a shortfall may start a purge: one at a time, and not again after a useless one (T21, K30), unless the
/// danger has grown since.
struct PurgeGovernor: Sendable {
    /// True while a purge is running.
    private(set) var isRunning = false
    /// True if the last purge brought nothing back.
    private(set) var lastWasUseless = false
    private var end = Duration.zero
    private var holdOff = Duration.zero
    private var trim = Duration.zero
    private var availableThen: ByteCount?

    /// Factor of the memory available after a purge. If available memory falls below that, the next purge need not
    /// wait.
    static let worsening = 0.75

    /// Returns true if a purge may start now; the purge then counts as running until `finished`.
    ///
    /// Trimming the heap stops other threads' allocations, so trims may take a twentieth of the time, at the critical
    /// level a fifth.
    mutating func start(at now: Duration, level: PressureLevel, available: ByteCount?) -> Bool {
        if isRunning { return false }
        let rest = max(holdOff, trim * (level == .critical ? 4 : 19))
        if now - end < rest {
            guard let available, let availableThen, available < availableThen * Self.worsening else { return false }
        }
        isRunning = true
        return true
    }

    /// Records the end of a purge.
    ///
    /// - Parameters:
    ///   - report: result of the purge.
    ///   - available: memory that can be allocated afterwards.
    mutating func finished(_ report: ActionReport, at now: Duration, available: ByteCount?) {
        isRunning = false
        // Volatile memory released says nothing about the next pass: that memory was available before.
        let fall = report.heapFall
        // Even if nothing was released, the heap may still have had memory to give back.
        let nothing = report.released < min(.mebibytes(1), report.asked)
        lastWasUseless = fall < (nothing ? .mebibytes(1) : report.released * 0.1)
        holdOff = !lastWasUseless ? .zero : nothing ? .seconds(30) : max(.seconds(5), report.took * 20)
        trim = report.trim
        end = now
        availableThen = available
    }

    /// Records that a purge hung in a purgeable and was given up; the next one skips that purgeable.
    mutating func abandoned() { isRunning = false }

    /// Forgets the results of purges, because memory is plentiful again.
    mutating func reset() {
        lastWasUseless = false
        holdOff = .zero
        trim = .zero
    }
}
