import Plimsoll
import PlimsollDemos
import Synchronization

/// A source that forwards to another source and times the loop's turns. One turn goes from `read` to the next `wait`,
/// deciding and responding included.
final class TurnTimer: PressureSource {
    private struct State {
        var began: (wall: Duration, processor: Duration)?
        var wall: ContiguousArray<Double> = []
        var processor: ContiguousArray<Double> = []
    }

    private let source: any PressureSource
    private let state: Mutex<State>
    /// Largest number of recorded turns; later turns are not recorded.
    private static let most = 100_000

    init(_ source: any PressureSource) {
        self.source = source
        var state = State()
        state.wall.reserveCapacity(Self.most)
        state.processor.reserveCapacity(Self.most)
        self.state = Mutex(state)
    }

    /// Turns so far, in microseconds each.
    var turns: (wall: [Double], processor: [Double]) { state.withLock { (Array($0.wall), Array($0.processor)) } }

    func reset() {
        state.withLock {
            $0.wall.removeAll(keepingCapacity: true)
            $0.processor.removeAll(keepingCapacity: true)
        }
    }

    func read(at: Duration) throws(PressureSourceError) -> PressureReading {
        let now = (SteadyClock.now, SteadyClock.thread)
        // A destructive step reads twice within one turn.
        state.withLock { if $0.began == nil { $0.began = now } }
        return try source.read(at: at)
    }

    func wait(atMost limit: Duration) {
        let now = (wall: SteadyClock.now, processor: SteadyClock.thread)
        state.withLock { state in
            if let began = state.began, state.wall.count < Self.most {
                state.wall.append((now.wall - began.wall).milliseconds * 1000)
                state.processor.append((now.processor - began.processor).milliseconds * 1000)
            }
            state.began = nil
        }
        source.wait(atMost: limit)
    }

    var capabilities: Capabilities { source.capabilities }
    func wake() { source.wake() }
    func footprint() -> Footprint { source.footprint() }
    var rings: Bool { source.rings }
}
