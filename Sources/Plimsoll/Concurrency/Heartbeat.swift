import Synchronization

/// A period in which this process did not run although time went on.
public struct RunningGap: Sendable, Hashable {
    /// The cause of a gap.
    package enum Kind: String, Sendable, Hashable {
        /// The process was frozen, stopped, or starved of its processor. `CLOCK_MONOTONIC` went on (K35).
        case frozen
        /// The host slept: `CLOCK_BOOTTIME` went on and `CLOCK_MONOTONIC` did not.
        case hostSleep
    }

    /// The cause of the gap.
    package var kind: Kind
    /// True if the host slept; false if the process was frozen, stopped, or starved of its processor.
    public var isHostSleep: Bool { kind == .hostSleep }
    /// Minimum length. The true length is greater by at most the time between two beats. That of a sleep of the host
    /// includes a freeze just before or after the sleep.
    public var length: Duration

    /// Creates a gap of that kind and length.
    package init(_ kind: Kind, _ length: Duration) {
        self.kind = kind
        self.length = length
    }
}

/// Running time, and the gaps in that time.
///
/// Each thread of the library promises when it will beat again. If no thread has beaten long after the earliest
/// promise, the process did not run. Deadlines are judged by time without such gaps (T30). The first thread that
/// finds a gap starts the resumption (C17).
package final class Heartbeat: Sendable {
    /// Threads that make promises.
    package enum Part: Int { case loop, alarms, environment }

    private struct State {
        var promises = [Duration](repeating: .max, count: 3)
        var frozen = Duration.zero
        var asleep: Duration

        var due: Duration { min(promises[0], promises[1]) }
    }

    /// Delay of a beat beyond which the process did not run: on a busy machine threads wait tens of milliseconds.
    package static let tolerance = Duration.seconds(1)

    private let state: Mutex<State>
    private let time: Timekeeper
    /// Time from which the heartbeat is late, in nanoseconds. A thread that finds this time passed checks under the
    /// lock. Released and acquired, so that a thread that finds the time not passed any more sees the gap counted.
    private let lateAt = Atomic<Int64>(.max)
    private let gapCount = Atomic<UInt64>(0)

    package init(time: Timekeeper) {
        self.time = time
        state = Mutex(State(asleep: time.asleep()))
    }

    /// Records that `part` runs now and will beat again within `next`; `nil` for no promise. A manual clock
    /// promises only its own steps.
    ///
    /// - Returns: the gap that has just ended, to exactly one caller.
    package func beat(_ part: Part, next: Duration?) -> RunningGap? {
        let now = time.elapsed(), asleep = time.asleep()
        return state.withLock { state in
            var gap: RunningGap?
            if state.due < .max, now - state.due > Self.tolerance {
                gap = RunningGap(.frozen, now - state.due)
                state.frozen += now - state.due
                state.promises = [.max, .max, .max]
            }
            if asleep - state.asleep > Self.tolerance {
                // The machine may take seconds to fall asleep and to wake, in which the process is frozen too.
                gap = RunningGap(.hostSleep, asleep - state.asleep + (gap?.length ?? .zero))
            }
            if gap != nil { gapCount.add(1, ordering: .relaxed) }
            state.asleep = asleep
            state.promises[part.rawValue] = next.map { now + $0 } ?? .max
            lateAt.store(state.due == .max ? .max : (state.due + Self.tolerance).inNanoseconds, ordering: .releasing)
            return gap
        }
    }

    /// Time without gaps. Frozen from the first broken promise until the gap is noticed.
    package var running: Duration {
        let now = time.elapsed()
        return state.withLock { state in
            (state.due < .max && now - state.due > Self.tolerance ? state.due : now) - state.frozen
        }
    }

    /// True if a gap has ended that no thread has noticed yet. Costs one reading of the clock.
    package var isLate: Bool { time.elapsed().inNanoseconds > lateAt.load(ordering: .acquiring) }

    /// Number of gaps noticed so far. Read after `isLate`.
    package var gaps: UInt64 { gapCount.load(ordering: .relaxed) }
}
