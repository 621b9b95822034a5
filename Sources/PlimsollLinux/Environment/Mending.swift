import Plimsoll

/// Retry state of a broken watch: a back-off of one second, doubling up to a minute. Lasting errors are not retried.
struct Mending {
    /// The last error; `nil` if the watch works.
    private(set) var failure: KernelError?
    private var backOff = BackOff()

    mutating func failed(_ number: Int, at now: Duration) {
        let failure = KernelError(number: Int32(clamping: abs(number)))
        self.failure = failure
        backOff.failed(at: now)
    }

    mutating func isWhole() {
        failure = nil
        backOff.recovered()
    }

    /// Returns true if a retry is allowed now. Lasting errors are retried only if `asked`.
    func isDue(at now: Duration, asked: Bool) -> Bool {
        asked || (failure?.isLasting != true && backOff.isOver(at: now))
    }

    /// Returns the time until the next retry; `nil` if there is nothing to retry.
    func wait(at now: Duration) -> Duration? {
        guard let failure, !failure.isLasting else { return nil }
        return backOff.remaining(at: now) ?? .zero
    }
}
