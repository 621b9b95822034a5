import Glibc
public import Plimsoll
import PlimsollLinux
import Synchronization

/// A supervisor that runs units and relieves memory pressure in a fixed order. Frozen units give first, then units that
/// can be warned, then background units, and foreground units last. A unit is ended only if it has reported that
/// nothing would be lost, or was asked and given time.
///
///     let units = try UnitsFile(path: "UNITS.yaml").units
///     let supervisor = try Supervisor(units, directory: "/run/plimsoll")
///     try supervisor.run()                       // until stop() is called
///
/// Units live in control groups of their own, below the supervisor's. No unit stays frozen after the supervisor ends
/// for any reason: a guard process detects the end and thaws all units. The next supervisor takes over the running
/// units.
public final class Supervisor: Sendable {
    /// The parameters of `init(_:directory:policy:thresholds:prefix:audit:leavesUnits:makesLeaf:)`.
    package struct Options: Sendable {
        package var directory: String
        package var policy = SupervisorPolicy.standard
        package var thresholds = PressureThresholds.standard
        package var prefix = "plimsoll"
        package var audit: String?
        package var leavesUnits = false
        package var makesLeaf = false
        /// Greatest time that the loop waits for an answer of the guard.
        package var guardPatience = Duration.seconds(1)

        package init(directory: String) { self.directory = directory }
    }

    package let options: Options
    /// The facilities available for actions on units, and the reasons for missing ones. During `run()`, also includes
    /// the measures that protect the supervisor itself from being killed or delayed.
    public var capabilities: Capabilities {
        protection.withLock { $0 }.reduce(root.capabilities) {
            $0.adding(.init($1.name, isLive: $1.isDone, $1.sentence))
        }
    }

    /// Requests from other threads to the supervisor's thread.
    enum Request: Sendable {
        case stop
        case units([ServiceUnit], SupervisorPolicy?)
        /// The result of an operation: the ID of the run, and the number of the operation.
        case outcome(UInt64, UInt64, failure: String?)
        /// The result of a lock check: true in `areHeld` if the run, in its state since `since`, held locks at `asked`.
        case locks(UInt64, since: Duration, asked: Duration, areHeld: Bool)
    }

    let root: GroupRoot
    let source: any PressureSource
    let queue: EventQueue
    let requests = Mutex<[Request]>([])
    let listeners = Mutex<[@Sendable (AuditRecord) -> Void]>([])
    let complaints = Mutex<[@Sendable (String) -> Void]>([])
    let published = Mutex<[UnitReport]>([])
    let protection = Mutex<[SelfProtection.Outcome]>([])
    /// The claim, held until the supervisor has run.
    let claim: Mutex<SupervisorClaim?>
    private let first: [ServiceUnit]
    private let hasRun = Atomic(false)
    /// Number of turns of the supervisor's thread. Tests use this to detect needless evaluations.
    let turns = Atomic(0)
    /// Number of evaluations of all units.
    let evaluations = Atomic(0)

    /// Examines the system and starts nothing. Until `run()` has ended, no other supervisor can use the same directory,
    /// or the same prefix in the same groups.
    ///
    /// - Parameters:
    ///   - directory: the directory for the sockets, and for the notes to the next supervisor. Must exist. Other users
    ///     may pass through the directory, as units may run as other users, but must not write there (0711).
    ///   - policy: the parameters of the decisions.
    ///   - thresholds: the thresholds of memory pressure on the system that all units share.
    ///   - prefix: the prefix of group names. A second supervisor on the same system needs another prefix.
    ///   - audit: the file to which each decision and outcome is appended, one JSON line each; `nil` for none.
    ///   - leavesUnits: true if units keep running when the supervisor stops, for the next supervisor.
    ///   - makesLeaf: true to move the supervisor into a leaf group where units can't have groups otherwise. Applies to
    ///     delegated groups only (`Delegate=yes`).
    /// - Throws: an error if another supervisor has them, with the number of its process.
    public convenience init(
        _ units: [ServiceUnit], directory: String, policy: SupervisorPolicy = .standard,
        thresholds: PressureThresholds = .standard, prefix: String = "plimsoll", audit: String? = nil,
        leavesUnits: Bool = false, makesLeaf: Bool = false
    ) throws {
        var options = Options(directory: directory)
        (options.policy, options.thresholds, options.prefix, options.audit) = (policy, thresholds, prefix, audit)
        (options.leavesUnits, options.makesLeaf) = (leavesUnits, makesLeaf)
        try self.init(units, options, source: LinuxPressureSource(thresholds: options.thresholds))
    }

    /// - Parameters:
    ///   - source: the source of memory pressure of the system that all units share.
    ///   - root: the place where groups are made; `nil` for any possible place.
    package init(_ units: [ServiceUnit], _ options: Options, source: any PressureSource, root: GroupRoot? = nil) throws
    {
        (first, self.options, self.source) = (units, options, source)
        // Claim before examining anything that another supervisor may own. A dry run owns nothing and claims nothing.
        let isDryRun = options.policy.isDryRun
        let claim = isDryRun ? nil : try SupervisorClaim(directory: options.directory)
        // A dry run puts started units into groups of its own.
        let prefix = isDryRun ? "\(options.prefix).dry-run-\(getpid())" : options.prefix
        self.root = root ?? GroupRoot(prefix: prefix, makesLeaf: options.makesLeaf && !isDryRun)
        try claim?.claim(options.prefix, in: self.root.parents.values)
        self.claim = Mutex(claim)
        queue = try EventQueue()
    }

    /// Starts the units and supervises them until `stop()`, on the calling thread.
    ///
    /// - Throws: an error if called before, or if a required resource can't be made.
    public func run() throws {
        // Relaxed: one caller wins; no other memory depends on this flag.
        guard !hasRun.exchange(true, ordering: .relaxed) else {
            throw SupervisorError("cannot run this Supervisor because it has run already; make another one")
        }
        defer { claim.withLock { $0 = nil } }
        try SupervisorLoop(self).run(first)
    }

    /// Ends all units that this supervisor started, each after the units that depend on that one. Releases units that
    /// ran before, and then ends `run()`. Callable from any thread.
    ///
    /// All of this takes at most `SupervisorPolicy.grace`; remaining units are then killed.
    public func stop() { ask(.stop) }

    /// Replaces the set of units. New units are started, and removed units are ended or released. Other changes apply
    /// while the units run. Callable from any thread.
    ///
    /// - Parameter policy: the parameters of the decisions from now on; `nil` to keep them. Operations under way keep
    ///   theirs, and a dry run stays one.
    public func reload(_ units: [ServiceUnit], policy: SupervisorPolicy? = nil) { ask(.units(units, policy)) }

    /// The report of each unit at the last evaluation.
    package var reports: [UnitReport] { published.withLock { $0 } }

    /// Calls `body` with each decision and each outcome, on the supervisor's thread. `body` must not block.
    package func onRecord(_ body: @escaping @Sendable (AuditRecord) -> Void) { listeners.withLock { $0.append(body) } }

    /// Calls `body` with problems outside of decisions: a unit that can't be started, a group that can't be removed.
    public func onProblem(_ body: @escaping @Sendable (String) -> Void) { complaints.withLock { $0.append(body) } }

    func report(_ problem: String) { for listener in complaints.withLock({ $0 }) { listener(problem) } }

    func ask(_ request: Request) {
        requests.withLock { $0.append(request) }
        queue.ring()
    }
}
