import Plimsoll

/// When what is broken is tried again: after one second, doubling up to a minute, unless it would be refused again.
struct Mending {
    /// Why it is broken; `nil` if it isn't.
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

    /// Whether it may be tried now; what would be refused again only when asked to.
    func isDue(at now: Duration, asked: Bool) -> Bool { asked || (failure?.isLasting != true && backOff.isOver(at: now)) }

    /// Time until it may be tried; `nil` if there is nothing to be tried.
    func wait(at now: Duration) -> Duration? {
        guard let failure, !failure.isLasting else { return nil }
        return backOff.remaining(at: now) ?? .zero
    }
}
