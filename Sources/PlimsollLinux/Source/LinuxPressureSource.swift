#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc
public import Plimsoll
public import PlimsollLifecycle

/// The kernel's view of this process's memory: its control group on cgroup version 2, version 1 or a hybrid of both,
/// pressure stall information, and the service manager's announcements.
///
/// Creating a source never fails. Each signal is probed by use. A missing or refused signal is dead in `capabilities`,
/// with the reason, and the next best replaces it. Signals that die later are reported as such and armed again with a
/// back-off of one second up to a minute. A group that was removed, or that the process was moved out of, is looked up
/// anew. Limits changed at run time are followed at once.
///
/// One thread at a time calls `read` and `wait`. All other methods may be called from any thread.
public final class LinuxPressureSource: PressureSource, EnvironmentProvider {
    /// The parameters of `init(thresholds:setsHigh:usesTriggers:)`.
    package struct Options: Sendable {
        package var thresholds: PressureThresholds
        package var setsHigh: Bool
        package var usesTriggers: Bool

        /// Creates options with these values.
        package init(thresholds: PressureThresholds = .standard, setsHigh: Bool = false, usesTriggers: Bool = true) {
            self.thresholds = thresholds
            self.setsHigh = setsHigh
            self.usesTriggers = usesTriggers
        }
    }

    /// The service manager's two variables, and the time zone's.
    package struct Environment: Sendable {
        package var watch: String?
        package var write: String?
        /// `$TZ`.
        package var zone: String?

        package init(watch: String? = nil, write: String? = nil, zone: String? = nil) {
            self.watch = watch
            self.write = write
            self.zone = zone
        }

        /// The variables of this process.
        static var ofProcess: Environment {
            func variable(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }
            return Environment(
                watch: variable("MEMORY_PRESSURE_WATCH"), write: variable("MEMORY_PRESSURE_WRITE"), zone: variable("TZ")
            )
        }
    }

    /// The rest of the environment: clock, time zone, locale, files, devices and power. Costs nothing until a kind is
    /// watched.
    package let environment: (any EnvironmentSource)?

    private let shared: SharedView
    // Used by `read` and `wait` alone, which one thread at a time calls: the manager's loop.
    private nonisolated(unsafe) let observer: CgroupReader

    /// Creates a source for the group of this process.
    ///
    /// - Parameters:
    ///   - thresholds: thresholds for the kernel's usage events on cgroup version 1, and for the headroom below which
    ///     `memory.stat` is read each time. Give the same numbers to the policy.
    ///   - setsHigh: true to set `memory.high` of the own group to a tenth, at least 32 MiB, below `memory.max`.
    ///     Running into the limit then slows down allocation instead of killing. Needs cgroup version 2 and a writable
    ///     group (`Delegate=yes`). The earlier value is never exceeded. That value is restored when `memory.max` is
    ///     lifted, or raised so far that a tenth below is no less, and when the source is released.
    ///   - usesTriggers: true to arm a stall trigger on `memory.pressure`, so that sustained stall ends a wait. Totals
    ///     are read once a second in any case.
    public convenience init(
        thresholds: PressureThresholds = .standard, setsHigh: Bool = false, usesTriggers: Bool = true
    ) {
        self.init(
            options: Options(thresholds: thresholds, setsHigh: setsHigh, usesTriggers: usesTriggers),
            kernel: HostKernel(), environment: .ofProcess)
    }

    /// Creates a source on `kernel`, with the variables of `environment`.
    package init(options: Options = Options(), kernel: any Kernel, environment: Environment = Environment()) {
        self.environment = (kernel as? any EnvironmentKernel).map { LinuxEnvironment($0, zone: environment.zone) }
        shared = SharedView(kernel)
        observer = CgroupReader(options, kernel, environment, shared)
    }

    /// The live signals, probed by use, and the dead ones with reasons: `limit`, `usage`, `reclaimable`,
    /// `limit events`, `usage thresholds`, `stall`, `stall trigger`, `announced`, `throttle`, `resident`.
    public var capabilities: Capabilities { shared.currentCapabilities }

    /// Returns the present values of the group's files. Usage is read each time, the rest as often as it can matter.
    /// `memory.stat` is read while usage is near the limit. `memory.pressure` and `memory.events` are read once a
    /// second and after their events. Limits are read after each write to them and every ten seconds.
    ///
    /// `limit` is the smallest of all levels; `available` is the least that any level and the machine leave.
    ///
    /// - Throws: an error if no file at all can be read.
    public func read(at: Duration) throws(PressureSourceError) -> PressureReading { try observer.read(at: at) }

    /// Blocks until `wake`, a change of `memory.events`, a changed limit, a usage threshold crossed, stall reported by
    /// the trigger, or an announcement. Also ends when `limit` has passed, and sometimes without an event.
    public func wait(atMost limit: Duration) { observer.wait(atMost: limit) }

    /// Ends a `wait`, the present one or else the next. From any thread, also one that is short of memory.
    public func wake() { shared.wakeup.ring() }

    /// Treats `level` as announced, as if it had come by `$MEMORY_PRESSURE_WATCH`. The level lasts as long as the
    /// thresholds allow, and must be repeated while the cause lasts. From any thread.
    package func announce(_ level: PressureLevel) { shared.announce(level) }

    /// Returns resident memory from `/proc/self/statm`, and usage of the group with the smallest limit, or of the
    /// machine where no group has one.
    public func footprint() -> Footprint { shared.footprint() }

    /// True if the kernel ends a wait before memory is short: by an eventfd of cgroup version 1 still to be crossed, or
    /// by `memory.events` at a `memory.high` well below the limit.
    public var rings: Bool { shared.rings }
}
#endif
