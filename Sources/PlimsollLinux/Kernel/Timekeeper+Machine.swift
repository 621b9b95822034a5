import Glibc
public import Plimsoll

extension Timekeeper {
    /// The machine's running time from its own beginning (`CLOCK_MONOTONIC`): the same in all processes, so that what several saw can be put on one axis.
    public static let machine = Timekeeper {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
    }
}
