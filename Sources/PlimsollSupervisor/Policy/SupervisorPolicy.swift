public import Plimsoll

/// The numbers that a supervisor decides by.
public struct SupervisorPolicy: Sendable, Hashable {
    /// How long a unit has from being told to go to the background until it is made to stand still. iOS gives 5 s.
    public var leaveTime = Duration.seconds(5)
    /// From a notice to one unit to a notice to the next, so that what the first gives back is seen before the second gives anything (xnu).
    public var noticeSpacing = Duration.milliseconds(250)
    /// Before a unit is told a level that it knows again (xnu: 25 s).
    public var noticeRest = Duration.seconds(25)
    /// How long a lower level must have lasted before units are told of it. The level itself falls only when memory has been free for a while.
    public var fallHold = Duration.milliseconds(500)

    /// How long a kill has to show in what is charged before the next is thought of. 2 GiB take 0.2 to 0.3 s to go (K39), so this is many times that;
    /// where they have gone earlier, the wait is over earlier.
    public var coolDown = Duration.seconds(2)
    /// How long other steps have to be answered: a freeze to be confirmed, memory to be pushed out. Then they count as failed.
    public var answerTime = Duration.seconds(5)
    /// For how long a step that failed with a unit is not tried again with it.
    public var failureRest = Duration.seconds(30)

    /// From SIGTERM to SIGKILL.
    public var grace = Duration.seconds(10)
    /// How much later at most, for the sake of background tasks that are alive.
    public var graceExtension = Duration.seconds(25)
    /// How long memory must have been critical without a break before a unit in front is ended.
    public var foregroundPatience = Duration.seconds(10)
    /// How long a throttled unit has before it may be ended (C36).
    public var throttleGrace = Duration.seconds(30)

    /// How long a unit runs each time that it is woken for keep-alive (C33; iOS gives 10 s).
    public var keepAliveBudget = Duration.seconds(10)
    /// The least time between two such wakes (C33).
    public var keepAliveInterval = Duration.seconds(600)

    /// A unit that was there again sooner than this after it was ended comes straight back: ending it is harm (T33). Nor is one that was ended started sooner.
    public var relaunchGap = Duration.seconds(30)
    /// How long level `normal` must have lasted, with nothing short, before units are resumed and started.
    public var roomHold = Duration.seconds(10)
    /// From one unit that is resumed or started to the next, and up to half as much again by its name: not all reconnect at once (T29).
    public var thawSpacing = Duration.milliseconds(500)
    /// Less than this is not worth pushing out.
    public var leastPushOut = ByteCount.mebibytes(1)

    /// Decide and report, but do nothing: decisions come out marked.
    public var isDryRun = false

    public init() {}

    public static let standard = SupervisorPolicy()
}
