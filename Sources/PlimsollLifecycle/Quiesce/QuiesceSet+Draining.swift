import Plimsoll
import Synchronization

extension QuiesceSet {
    /// Waits until the work that paused members had admitted has ended, at most for `limit` of running time.
    ///
    /// - Returns: The names of the members that still work then.
    func drain(within limit: Duration) async -> [String] {
        let members = pausedWorkers
        guard !members.isEmpty else { return [] }
        let drain = Drain(members.map(\.name))
        let alarm = alarms.set(.deadline, after: max(.zero, limit)) { drain.end() }
        defer { alarm.cancel() }
        for (index, member) in members.enumerated() { member.whenIdle { drain.finish(index) } }
        return await withCheckedContinuation { drain.wait($0) }
    }
}

/// The members being drained, and the caller that waits for them.
private final class Drain: Sendable {
    private struct State {
        var working: [Int: String]
        var isOver = false
        var continuation: CheckedContinuation<[String], Never>?

        var names: [String] { working.sorted { $0.key < $1.key }.map(\.value) }
    }

    private let state: Mutex<State>

    init(_ names: [String]) {
        state = Mutex(
            State(working: Dictionary(uniqueKeysWithValues: names.enumerated().map { ($0.offset, $0.element) })))
    }

    func wait(_ continuation: CheckedContinuation<[String], Never>) {
        let names: [String]? = state.withLock { state in
            guard !state.isOver else { return state.names }
            state.continuation = continuation
            return nil
        }
        if let names { continuation.resume(returning: names) }
    }

    func finish(_ index: Int) {
        let isLast = state.withLock { state in
            state.working[index] = nil
            return state.working.isEmpty
        }
        if isLast { end() }
    }

    func end() {
        let (continuation, names) = state.withLock { state in
            state.isOver = true
            defer { state.continuation = nil }
            return (state.continuation, state.names)
        }
        continuation?.resume(returning: names)
    }
}
