import Glibc
public import Plimsoll
import PlimsollLinux
import Synchronization

/// Runs units, and when memory is short has them give way in order: what stands still first, then those that can be warned, then what nobody waits for, and what
/// somebody waits for last. Whoever is ended has said before that nothing would be lost, or was asked and given time.
///
///     let supervisor = try Supervisor(UnitsFile(path: "UNITS.yaml").units, Supervisor.Options(directory: "/run/plimsoll"))
///     try supervisor.run()                       // until somebody calls stop()
///
/// Units live in control groups of their own, below the supervisor's. Whatever becomes of it, none stays frozen: a guard sees it end and sets all free, and the
/// next supervisor takes over what runs.
public final class Supervisor: Sendable {
    /// How it works.
    public struct Options: Sendable {
        /// For its sockets, and for what the next one has to know. Must exist; others may pass through it, as units may run as other
        /// users, and write nothing there (0711).
        public var directory: String
        public var policy = SupervisorPolicy.standard
        /// When memory counts as short where all units are.
        public var thresholds = PressureThresholds.standard
        /// What its groups' names begin with; another supervisor beside it needs another.
        public var prefix = "plimsoll"
        /// Every decision and what came of it is appended here, a JSON line each; `nil` for nowhere.
        public var audit: String?
        /// Whether units run on when it stops, for the next supervisor.
        public var leavesUnits = false
        /// Whether to move into a group of its own where only that lets units have theirs; in delegated groups only (`Delegate=yes`).
        public var makesLeaf = false

        public init(directory: String) { self.directory = directory }
    }

    public let options: Options
    /// Which facilities there are for what is done to units, and why others are not; once it runs, also what it did to be neither killed nor kept waiting itself.
    public var capabilities: Capabilities {
        protection.withLock { $0 }.reduce(root.capabilities) {
            $0.adding(.init($1.name, isLive: $1.isDone, $1.sentence))
        }
    }

    /// What others ask of its thread.
    enum Request: Sendable {
        case stop
        case units([ServiceUnit])
        /// Of the run with that id, what was under way by that number.
        case outcome(UInt64, UInt64, failure: String?)
        /// Whether the run with that id, on its way out since then, held locks when that was asked.
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
    /// As long as it may run, and until it has.
    let claim: Mutex<SupervisorClaim?>
    private let first: [ServiceUnit]
    private let hasRun = Atomic(false)
    /// How often its thread has turned; a test sees by it that nothing is looked at for no reason.
    let turns = Atomic(0)
    /// How often it has looked at all units.
    let looks = Atomic(0)

    /// Looks at what there is; starts nothing. From then on until `run()` has ended, no other supervisor has its directory, nor its prefix where its groups are.
    ///
    /// - Throws: if another supervisor has them, with the number of its process.
    public convenience init(_ units: [ServiceUnit], _ options: Options) throws {
        try self.init(units, options, source: LinuxPressureSource(options: .init(thresholds: options.thresholds)))
    }

    /// - Parameters:
    ///   - source: what says how short memory is where all units are.
    ///   - root: where groups are made; `nil` for wherever they can be.
    package init(_ units: [ServiceUnit], _ options: Options, source: any PressureSource, root: GroupRoot? = nil) throws
    {
        (first, self.options, self.source) = (units, options, source)
        // Before anything is looked at that another may have. A dry run has nothing to itself, and takes nothing.
        let isDryRun = options.policy.isDryRun
        let claim = isDryRun ? nil : try SupervisorClaim(directory: options.directory)
        // What a dry run starts is in groups of its own.
        let prefix = isDryRun ? "\(options.prefix).dry-run-\(getpid())" : options.prefix
        self.root = root ?? GroupRoot(prefix: prefix, makesLeaf: options.makesLeaf && !isDryRun)
        try claim?.claim(options.prefix, in: self.root.parents.values)
        self.claim = Mutex(claim)
        queue = try EventQueue()
    }

    /// Starts the units and looks after them until `stop()`; on the calling thread.
    ///
    /// - Throws: if it has run before, or what it works with can't be made.
    public func run() throws {
        // Relaxed: one caller wins; nothing else hangs on it.
        guard !hasRun.exchange(true, ordering: .relaxed) else {
            throw SupervisorError("this Supervisor has run already; make another to run again")
        }
        defer { claim.withLock { $0 = nil } }
        try SupervisorLoop(self).run(first)
    }

    /// Ends all units that it started, each after those that need it, lets go of those that ran before, and then ends `run()`. From any thread.
    ///
    /// All of it takes `SupervisorPolicy.grace`; whoever is left then is killed.
    public func stop() { ask(.stop) }

    /// From now on these are the units: new ones are started, others ended or let go of, and what can be changed while they run is. From any thread.
    public func reload(_ units: [ServiceUnit]) { ask(.units(units)) }

    /// What was known of each unit at the last look.
    public var reports: [UnitReport] { published.withLock { $0 } }

    /// Calls `body` with each decision and each outcome, on the supervisor's thread, which it must not keep.
    public func onRecord(_ body: @escaping @Sendable (AuditRecord) -> Void) { listeners.withLock { $0.append(body) } }

    /// Calls `body` with what went wrong outside of decisions: a unit that can't be started, a group that can't be removed.
    public func onProblem(_ body: @escaping @Sendable (String) -> Void) { complaints.withLock { $0.append(body) } }

    func tell(_ problem: String) { for listener in complaints.withLock({ $0 }) { listener(problem) } }

    func ask(_ request: Request) {
        requests.withLock { $0.append(request) }
        queue.ring()
    }
}
