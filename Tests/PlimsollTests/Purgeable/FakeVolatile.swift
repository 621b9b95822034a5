import Synchronization

@testable import Plimsoll

/// A holder of volatile memory that only has numbers, and notes each request.
final class FakeVolatile: VolatilePurgeable {
    struct State {
        var held = 0
        var pinned = 0
        /// Bytes that the kernel has reclaimed and that are not noticed yet.
        var dropped = 0
        var asked = 0
        var calls = 0
        var largest = 0
        var checks = 0
        var idleCalls = 0
    }

    let name: String
    let rebuildCost: RebuildCost
    let state: Mutex<State>
    private let meter = AtomicLazyReference<ChargeMeter>()
    private let onRelease: @Sendable () -> Void

    /// - Parameter pinned: the part of the memory that the kernel may not reclaim at present.
    init(
        _ name: String = "volatile", _ cost: RebuildCost = .cheap, mebibytes: Int = 0, pinned: Int = 0, onRelease: @escaping @Sendable () -> Void = {}
    ) {
        self.name = name
        rebuildCost = cost
        state = Mutex(State(held: mebibytes << 20, pinned: pinned << 20))
        self.onRelease = onRelease
    }

    var seen: State { state.withLock { $0 } }
    var heldBytes: Int { state.withLock { $0.held } }
    var volatileBytes: Int { state.withLock { max(0, $0.held - $0.pinned) } }

    func attach(volatile meter: ChargeMeter) {
        guard self.meter.storeIfNil(meter) === meter else { return }
        meter.takeAnyway(state.withLock { $0.held })
    }

    /// Takes segments of 2 MiB until the meter refuses. Returns the number of segments.
    func fill(atMost count: Int = 100_000) -> Int {
        var taken = 0
        while taken < count, meter.load()?.take(2 << 20) ?? true {
            state.withLock { $0.held += 2 << 20 }
            taken += 1
        }
        return taken
    }

    func release(_ target: Int) -> Int {
        onRelease()
        let released = state.withLock { state in
            let released = min(target, state.held)
            state.held -= released
            state.asked += target
            state.largest = max(state.largest, target)
            state.calls += 1
            return released
        }
        meter.load()?.give(released)
        return released
    }

    func noticeDrops() -> Int {
        let dropped = state.withLock { state in
            defer { state.dropped = 0 }
            state.held -= state.dropped
            state.checks += 1
            return state.dropped
        }
        meter.load()?.give(dropped)
        return dropped
    }

    func giveBackIdle() { state.withLock { $0.idleCalls += 1 } }
}
