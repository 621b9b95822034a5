import Synchronization

/// A time in which this process did not run although time went on.
public struct RunningGap: Sendable, Hashable {
    /// What kept it from running.
    public enum Kind: String, Sendable, Hashable {
        /// It was frozen, stopped, or starved of its processor. `CLOCK_MONOTONIC` went on (K35).
        case frozen
        /// The host slept: `CLOCK_BOOTTIME` went on and `CLOCK_MONOTONIC` did not.
        case hostSleep
    }

    /// What kept it from running.
    public var kind: Kind
    /// How long at least; the true length is greater by no more than what lay between two beats.
    public var length: Duration

    /// A gap of that kind and length.
    public init(_ kind: Kind, _ length: Duration) {
        self.kind = kind
        self.length = length
    }
}

/// Running time, and the gaps in it.
///
/// Each of our threads says when it will look again. When none has come by long after the first of these promises, the process did not run: deadlines
/// are judged by time without such gaps (T30), and who finds one first starts the way back (C17).
final class Heartbeat: Sendable {
    /// Who promises.
    enum Part: Int { case loop, alarms, environment }

    private struct State {
        var promises = [Duration](repeating: .max, count: 3)
        var frozen = Duration.zero
        var asleep: Duration

        var due: Duration { min(promises[0], promises[1]) }
    }

    /// A thread that comes by this much later than it said was not merely late: on a busy machine threads wait tens of milliseconds.
    static let tolerance = Duration.seconds(1)

    private let state: Mutex<State>
    private let time: Timekeeper
    /// When it is late, in nanoseconds. Whoever finds it passed asks under the lock; released and acquired, so that who finds it not passed any more sees the
    /// gap counted.
    private let lateAt = Atomic<Int64>(.max)
    private let gapCount = Atomic<UInt64>(0)

    init(time: Timekeeper) {
        self.time = time
        state = Mutex(State(asleep: time.asleep()))
    }

    /// `part` runs now and will come by again within `next`; `nil` for no promise. Time moved by hand has no promises but its own steps.
    ///
    /// - Returns: the gap that has just ended, to exactly one caller.
    func beat(_ part: Part, next: Duration?) -> RunningGap? {
        let now = time.elapsed(), asleep = time.asleep()
        return state.withLock { state in
            var gap: RunningGap?
            if state.due < .max, now - state.due > Self.tolerance {
                gap = RunningGap(.frozen, now - state.due)
                state.frozen += now - state.due
                state.promises = [.max, .max, .max]
            } else if asleep - state.asleep > Self.tolerance {
                gap = RunningGap(.hostSleep, asleep - state.asleep)
            }
            if gap != nil { gapCount.add(1, ordering: .relaxed) }
            state.asleep = asleep
            state.promises[part.rawValue] = next.map { now + $0 } ?? .max
            lateAt.store(state.due == .max ? .max : (state.due + Self.tolerance).inNanoseconds, ordering: .releasing)
            return gap
        }
    }

    /// Time without gaps. It stands still from the first promise that was not kept until the gap is noticed.
    var running: Duration {
        let now = time.elapsed()
        return state.withLock { state in
            (state.due < .max && now - state.due > Self.tolerance ? state.due : now) - state.frozen
        }
    }

    /// Whether a gap has ended that nobody has noticed yet. Costs a look at the clock.
    var isLate: Bool { time.elapsed().inNanoseconds > lateAt.load(ordering: .acquiring) }

    /// Gaps noticed so far. Read it after `isLate`.
    var gaps: UInt64 { gapCount.load(ordering: .relaxed) }
}
