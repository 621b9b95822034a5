public import Plimsoll

/// One service that a supervisor keeps: what it is, how much it matters, and what may be done to it when memory is short.
public struct ServiceUnit: Sendable, Hashable {
    /// What it is to begin with.
    public enum Origin: Sendable, Hashable {
        /// A program to start, with its arguments; the first is its path.
        case command([String])
        /// A process that already runs, and what it has started.
        case process(Int32)
        /// Everything in a control group, by its directory.
        case group(String)

        var isGroup: Bool { if case .group = self { true } else { false } }
    }

    /// What it does for its users, which says who goes first when memory is short.
    public enum Role: String, Sendable, Hashable, CaseIterable {
        /// Somebody waits for its answers.
        case foreground
        /// It works, but nobody waits.
        case background
        /// It may as well work later: it runs while there is room.
        case deferred
    }

    /// How it is made to stand still.
    public enum Suspension: String, Sendable, Hashable, CaseIterable {
        /// By the kernel's freezer (`cgroup.freeze`), which children cannot escape and parents do not see.
        case freeze
        /// By SIGSTOP, where there is no freezer: its parent sees that, and anybody with the right may continue it.
        case stop
        /// Not at all.
        case never
    }

    /// Whether it is started again when it ends.
    public enum Restart: String, Sendable, Hashable, CaseIterable {
        case never
        /// If it ended with another status than 0, or by a signal that the supervisor did not send.
        case onFailure = "on-failure"
        /// Also if the supervisor ended it, once there is room.
        case always
    }

    /// The processes of a unit that may speak for it by sd_notify(3) and by a supervisor's link, as systemd's `NotifyAccess=` has it.
    public enum NotifyAccess: String, Sendable, Hashable, CaseIterable {
        /// No process.
        case none
        /// The main process, other processes of that process's user, and those of root. Of a `group`, whose main process is not known, all.
        case main
        /// Every process of the unit.
        case all
    }

    /// How it is known: 1 to 64 letters, digits, `-`, `_` and `.`, of which the first is a letter or digit.
    public var name: String
    public var origin: Origin
    /// Added to the supervisor's own variables.
    public var environment: [String: String] = [:]
    /// `nil` for the supervisor's own.
    public var directory: String?
    public var role: Role = .foreground
    /// 0 to 1000: among units of one role the less important goes first.
    public var importance = 500
    /// What it needs to work well; protected from others (`memory.low`). `nil` for nothing.
    public var memoryRequest: ByteCount?
    /// What it may never exceed (`memory.max`). `nil` for no limit of its own.
    public var memoryLimit: ByteCount?
    public var suspension: Suspension = .freeze
    /// It is ended instead of suspended (C15).
    public var exitsOnSuspend = false
    /// How often it is woken while suspended, at least every 600 s (C33). `nil` for not at all.
    public var keepAlive: Duration?
    /// How long it may go on with processor and disk as it likes once it is in the background, before it is throttled and then ended (C36). `nil` for ever.
    public var allowance: Duration?
    public var restart: Restart = .onFailure
    /// It says `READY=1` when it has started (sd_notify(3)); what depends on it waits until then.
    public var notify = false
    /// How long it may take to say so, before it counts as failed. `nil` for 90 s.
    public var startTime: Duration?
    /// The processes that may speak for it.
    public var notifyAccess = NotifyAccess.main
    /// The number of the user that its sockets belong to; no other user but root then reaches them. `nil` where that is to be learned: from its start on every
    /// user may send, and once its main process has spoken as another user than root, that user alone.
    public var socketOwner: UInt32?
    /// Units that must run before it starts, by name.
    public var dependencies: [String] = []

    public init(name: String, origin: Origin) {
        self.name = name
        self.origin = origin
    }
}
