/// A shutdown whose budget was spent before the other services of the group had ended.
public struct ShutdownOverrun: Error, Sendable, Hashable, CustomStringConvertible {
    /// Time from the start of the shutdown to the end.
    public var budget: Duration
    /// The failure, the reason and the remedy.
    public var description: String {
        "cannot end the group in good order within shutdown.budget (\(budget)) because a service had not ended by then; its services are cancelled now. "
            + "Have services end when they are shut down, or raise shutdown.budget (PLIMSOLL_SHUTDOWN_BUDGET)"
    }

    init(_ budget: Duration) { self.budget = budget }
}
