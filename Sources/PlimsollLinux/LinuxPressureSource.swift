import Glibc
public import Plimsoll

/// The kernel's view of this process's memory: its control group on cgroup version 2, version 1 or a hybrid of both, pressure stall
/// information, and the service manager's announcements.
///
/// Making one never fails. Each signal is probed by using it; what is missing or refused is a dead signal in `capabilities` with the reason, and
/// the next best serves. Signals that die later are reported as such and armed again with pauses of one second up to a minute; a group that was
/// removed, or that the process was moved out of, is looked up anew; limits moved at run time are followed at once.
///
/// One thread at a time calls `read` and `wait`; everything else may be called from any thread.
public final class LinuxPressureSource: PressureSource {
    /// What is left to choose.
    public struct Options: Sendable {
        /// Where the kernel's own bells are set on cgroup version 1, and below how much room `memory.stat` is read with each look. Give the
        /// same numbers to the policy.
        public var thresholds: PressureThresholds
        /// Whether to set `memory.high` of the own group to a tenth, at least 32 MiB, below `memory.max`, so that running into the limit slows
        /// down allocation instead of killing. Needs cgroup version 2 and a group that may be written to (`Delegate=yes`). What stood there
        /// before is put back when the source is released.
        public var setsHigh: Bool
        /// Whether to arm a stall trigger on `memory.pressure`, so that sustained stall ends a wait. Totals are read once a second in any case.
        public var usesTriggers: Bool

        /// All choices.
        public init(thresholds: PressureThresholds = .standard, setsHigh: Bool = false, usesTriggers: Bool = true) {
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

        /// Those of this process.
        static var ofProcess: Environment {
            func variable(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }
            return Environment(watch: variable("MEMORY_PRESSURE_WATCH"), write: variable("MEMORY_PRESSURE_WRITE"), zone: variable("TZ"))
        }
    }

    /// The rest of the surroundings: clock, time zone, locale, files, devices and power. Costs nothing until something is watched.
    public let environment: (any EnvironmentSource)?

    private let shared: SharedView
    // Used by `read` and `wait` alone, which one thread at a time calls: the manager's loop.
    private nonisolated(unsafe) let observer: GroupObserver

    /// Looks at the group this process is in.
    public convenience init() { self.init(options: Options()) }

    /// Looks at the group this process is in, with `options`.
    public convenience init(options: Options) { self.init(options: options, kernel: HostKernel(), environment: .ofProcess) }

    /// Looks at what `kernel` shows, as told by `environment`.
    package init(options: Options = Options(), kernel: any Kernel, environment: Environment = Environment()) {
        self.environment = (kernel as? any EnvironmentKernel).map { LinuxEnvironment($0, zone: environment.zone) }
        shared = SharedView(kernel)
        observer = GroupObserver(options, kernel, environment, shared)
    }

    /// Which signals are live, probed by using them, and why the others are not: `limit`, `usage`, `reclaimable`, `limit events`,
    /// `usage thresholds`, `stall`, `stall trigger`, `announced`, `brake`, `resident`.
    public var capabilities: Capabilities { shared.currentCapabilities }

    /// What the group's files say now. Usage is read each time, the rest as often as it can matter: `memory.stat` while usage is near the limit,
    /// `memory.pressure` and `memory.events` once a second and when they ring, limits when somebody writes to them and every ten seconds.
    ///
    /// `limit` is the smallest on the way up, `available` the least that any level and the machine leave.
    ///
    /// - Throws: if no file at all can be read.
    public func read(at: Duration) throws(PressureSourceError) -> PressureReading { try observer.read(at: at) }

    /// Blocks until `wake`, a change of `memory.events`, a limit moved, a usage threshold crossed, stall reported by the trigger, an
    /// announcement, or until `limit` has passed. Now and then it ends for nothing.
    public func wait(atMost limit: Duration) { observer.wait(atMost: limit) }

    /// Ends a `wait`, the present one or else the next. From any thread, also one that is short of memory.
    public func wake() { shared.wakeBell.ring() }

    /// Takes `level` for announced by somebody who knows, as if it had come by `$MEMORY_PRESSURE_WATCH`: it holds as long as the thresholds let a level
    /// last, and is to be said again for as long as it lasts. From any thread.
    package func announce(_ level: PressureLevel) { shared.announce(level) }

    /// Resident memory from `/proc/self/statm`, and usage of the group with the smallest limit, or of the machine where no group has one.
    public func footprint() -> Footprint { shared.footprint() }

    /// Whether an eventfd of cgroup version 1 still to be crossed, or `memory.events` at a `memory.high` well below the limit, ends a wait before memory is short.
    public var rings: Bool { shared.rings }
}
