/// Where facts about the process's surroundings come from: the kernel, or a test's script. May be called from any thread.
///
/// It says that something may have changed; what holds is read afterwards and compared, so that an event too many or merged with others does no harm.
public protocol EnvironmentSource: Sendable {
    /// Has `sink` called with each kind of which something may have changed and the number of raw events seen, from any thread; it returns
    /// at once. Called once, before anything else.
    func start(_ sink: @escaping @Sendable (EnvironmentChange.Kind, Int) -> Void)

    /// Begins to listen for `kind`; calls are counted. A change after its return is told of.
    ///
    /// - Returns: false if this source knows nothing of that kind; then it isn't read nor unwatched.
    func watch(_ kind: EnvironmentChange.Kind) -> Bool

    /// Takes back one `watch`. After the last one it holds no file, no thread and no memory for that kind.
    func unwatch(_ kind: EnvironmentChange.Kind)

    /// Calls the sink, within this call, for all raw events that wait.
    func collect()

    /// What holds now; `nil` if it can't be told just now. May block on a file system.
    func read(_ kind: EnvironmentChange.Kind) -> EnvironmentValue?

    /// What is listened to and how; empty as long as nobody has asked for anything.
    var signals: [Capabilities.Signal] { get }
}
