public import Plimsoll

/// A source of facts about the process's surroundings: the kernel, or a test's script. May be called from any thread.
///
/// A source only reports that a value may have changed. The library then reads the value and compares. So superfluous
/// or merged events do no harm.
public protocol EnvironmentSource: Sendable {
    /// Starts the source. The source calls `sink` from any thread with each kind that may have changed, and the number
    /// of raw events seen. `sink` returns at once. Called once, before any other method.
    func start(_ sink: @escaping @Sendable (EnvironmentChange.Kind, Int) -> Void)

    /// Begins to watch `kind`; calls are counted. Changes after this method returns are reported.
    ///
    /// - Returns: false if this source does not know `kind`. Such a kind is neither read nor unwatched.
    func watch(_ kind: EnvironmentChange.Kind) -> Bool

    /// Undoes one `watch`. After the last one the source holds no file, no thread and no memory for `kind`.
    func unwatch(_ kind: EnvironmentChange.Kind)

    /// Calls the sink, within this call, for all raw events that wait.
    func collect()

    /// Returns the present value; `nil` if the value can't be read just now. May block on a file system.
    func read(_ kind: EnvironmentChange.Kind) -> EnvironmentValue?

    /// The signals that this source listens to, and by which means; empty while nothing is watched.
    var signals: [Capabilities.Signal] { get }
}

/// A source of readings that also reports changes of the process's environment: clock, time zone, files, devices.
///
/// A life cycle watches the environment through the source of its manager, if that source conforms.
public protocol EnvironmentProvider: Sendable {
    /// The source of changes; `nil` for none.
    var environment: (any EnvironmentSource)? { get }
}
