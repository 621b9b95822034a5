public import Plimsoll

/// One service kept by a supervisor: origin, importance, and permitted actions while memory is short.
public struct ServiceUnit: Sendable, Hashable {
    /// The initial processes of a unit.
    package enum Origin: Sendable, Hashable {
        /// A program to start, with its arguments; the first is the path.
        case command([String])
        /// A process that already runs, together with its descendants.
        case process(Int32)
        /// All processes in a control group, given by its directory.
        case group(String)

        var isGroup: Bool { if case .group = self { true } else { false } }
    }

    /// The purpose of a unit for its users, which decides the order of victims while memory is short.
    public enum Role: String, Sendable, Hashable, CaseIterable {
        /// Clients wait for answers.
        case foreground
        /// The unit works, but no client waits.
        case background
        /// Work that can be postponed: the unit runs while there is room.
        case deferred
    }

    /// The method of freezing a unit.
    public enum Suspension: String, Sendable, Hashable, CaseIterable {
        /// The kernel's freezer (`cgroup.freeze`). Children can't escape the freezer, and parents don't see the freeze.
        case freeze
        /// SIGSTOP, for systems without a freezer. The parent sees the stop, and any process with permission may send
        /// SIGCONT.
        case stop
        /// The unit is never frozen.
        case never
    }

    /// The condition for a restart after the unit ends.
    public enum Restart: String, Sendable, Hashable, CaseIterable {
        case never
        /// Restart after an exit status other than 0, or after a signal that the supervisor did not send.
        case onFailure = "on-failure"
        /// Restart also after the supervisor ended the unit, once there is room.
        case always
    }

    /// The processes of a unit that may send messages for that unit, by sd_notify(3) and by a supervisor's link.
    /// Corresponds to systemd's `NotifyAccess=`.
    package enum NotifyAccess: String, Sendable, Hashable, CaseIterable {
        /// No process.
        case none
        /// The main process, other processes of the same user, and those of root. A `group` has no known main process,
        /// so all of its processes may.
        case main
        /// Every process of the unit.
        case all
    }

    /// The unit's name: 1 to 64 letters, digits, `-`, `_` and `.`, of which the first is a letter or digit.
    public var name: String
    package var origin: Origin
    /// Variables added to the supervisor's own environment.
    public var environment: [String: String] = [:]
    /// The working directory; `nil` for the supervisor's own.
    public var directory: String?
    public var role: Role = .foreground
    /// Importance from 0 to 1000. Among units of one role, the less important goes first.
    public var importance = 500
    /// Memory that the unit needs to work well, protected from others (`memory.low`). `nil` for none.
    public var memoryRequest: ByteCount?
    /// The memory limit of the unit (`memory.max`). `nil` for no limit of its own.
    public var memoryLimit: ByteCount?
    public var suspension: Suspension = .freeze
    /// True if the unit is ended instead of frozen (C15).
    public var exitsOnSuspend = false
    /// Time between keep-alive wakes while frozen, at least 600 s (C33). `nil` for no wakes.
    public var keepAlive: Duration?
    /// Time that the unit may use processor and disk freely in the background, before being throttled and then ended
    /// (C36). `nil` for no limit.
    public var allowance: Duration?
    public var restart: Restart = .onFailure
    /// True if the unit reports `READY=1` after its start (sd_notify(3)). Dependent units wait for that message.
    public var notify = false
    /// Time limit for `READY=1`, after which the start counts as failed. `nil` for 90 s.
    public var startTime: Duration?
    package var notifyAccess = NotifyAccess.main
    /// The processes that may send messages for the unit, as `notifyAccess` of a units file: `none`, `main` or `all`.
    ///
    /// - Precondition: the text set is one of these words.
    public var messageSenders: String {
        get { notifyAccess.rawValue }
        set {
            guard let access = NotifyAccess(rawValue: newValue) else {
                preconditionFailure("messageSenders is \"\(newValue)\"; allowed are none, main and all")
            }
            notifyAccess = access
        }
    }
    /// The ID of the user that owns the unit's sockets; other users except root then can't reach them. `nil` to learn
    /// the owner: at first every user may send. Once the main process has sent a message as a user other than root,
    /// only that user may.
    public var socketOwner: UInt32?
    /// True to believe what the unit says that memory is worth to its caches (`SupervisorPolicy.division`). Otherwise
    /// the unit gains at most a twentieth of the memory for caches by its word.
    public var trustsWorth = false
    /// Names of units that must run before this one starts.
    public var dependencies: [String] = []

    package init(name: String, origin: Origin) {
        self.name = name
        self.origin = origin
    }

    /// Creates a unit of a program to start, with its arguments; the first is the path.
    public init(name: String, command: [String]) { self.init(name: name, origin: .command(command)) }

    /// Creates a unit of a process that already runs, together with its descendants.
    public init(name: String, process: Int32) { self.init(name: name, origin: .process(process)) }

    /// Creates a unit of all processes in a control group, given by its directory.
    public init(name: String, group: String) { self.init(name: name, origin: .group(group)) }
}
