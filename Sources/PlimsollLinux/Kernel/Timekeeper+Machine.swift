import Glibc
package import Plimsoll

extension Timekeeper {
    /// The machine's running time (`CLOCK_MONOTONIC`). The origin is the same in all processes, so times from several
    /// can be compared.
    package static let machine = Timekeeper {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
    }
}
