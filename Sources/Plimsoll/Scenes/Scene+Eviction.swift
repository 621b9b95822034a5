import Synchronization

extension Scene {
    /// What decides which scene goes first. A value.
    struct Candidate: Sendable, Hashable {
        var id: String
        var bytes: ByteCount
        var idle: Duration
        var state: LifecycleState
        var hasTasks: Bool

        /// The scenes that may go, in the order of going: idle ones only, the largest first, of equals the one unused for longest (C96, T33).
        static func order(_ candidates: [Candidate]) -> [Candidate] {
            candidates.filter { ($0.state == .background || $0.state == .suspended) && !$0.hasTasks && $0.bytes > .zero }
                .sorted { ($0.bytes, $0.idle, $1.id) > ($1.bytes, $1.idle, $0.id) }
        }
    }

    var candidate: Candidate {
        Candidate(
            id: id, bytes: ByteCount(byteCount), idle: lifecycle.alarms.heartbeat.running - contents.withLock { $0.lastUsed }, state: state,
            hasTasks: tasks.hasLiveTasks)
    }

    /// Whether its end was asked for: it goes nowhere else.
    var isEnding: Bool { contents.withLock { $0.wanted == .notRunning } }

    /// Saves it and lets go of what it holds, unless it was brought to the front or has got work to finish meanwhile; the bytes it let go of, `nil` if it stays.
    /// It has yet to be disconnected. Blocks.
    func evict() -> Int? {
        let bytes = byteCount
        guard mayGo, save(within: lifecycle.policy.backgroundDeadline).isEmpty, !tasks.hasLiveTasks else { return nil }
        // One of the two comes first: whoever brings it to the front, so that it stays, or this, and it comes back only by being connected again.
        let goes = contents.withLock { contents in
            guard contents.wanted > .notRunning, mayGo(contents.wanted) else { return false }
            contents.wanted = .notRunning
            return true
        }
        return goes ? max(bytes, letGoOfAll()) : nil
    }

    private var mayGo: Bool { mayGo(contents.withLock { $0.wanted }) }

    /// Whether it is behind the front and nobody brings it there.
    private func mayGo(_ wanted: LifecycleState) -> Bool {
        wanted > .notRunning && state < .inactive && state > .notRunning && lifecycle.wish.withLock { $0.scene(wanted) } < .inactive
    }
}

/// The scenes in one state behind the front, as something that gives way: each as a whole.
///
/// Those that are suspended go before those in the background (C90): they are asked like any cache that is expensive to make again, the others only when memory
/// is critical. Whoever has everything released, a supervisor or an operator, reaches both.
final class SceneEviction: Purgeable {
    let name: String
    let rebuildCost: RebuildCost
    private let state: LifecycleState
    private let scenes: @Sendable () -> [Scene]
    /// Has a scene that was let go of end in good order.
    private let disconnect: @Sendable (Scene) -> Void

    init(of state: LifecycleState, scenes: @escaping @Sendable () -> [Scene], disconnect: @escaping @Sendable (Scene) -> Void) {
        let isSuspended = state == .suspended
        name = isSuspended ? "suspended scenes" : "scenes in the background"
        rebuildCost = isSuspended ? .expensive : .precious
        self.state = state
        self.scenes = scenes
        self.disconnect = disconnect
    }

    private func candidates(_ scenes: [Scene]) -> [Scene.Candidate] { Scene.Candidate.order(scenes.map(\.candidate).filter { $0.state == state }) }

    var heldBytes: Int { candidates(scenes()).reduce(ByteCount.zero) { $0 + $1.bytes }.bytes }

    /// Evicts one scene after the other until enough was let go of. A scene whose snapshot cannot be written stays.
    func release(_ target: Int) -> Int {
        let all = scenes()
        var released = ByteCount.zero
        for candidate in candidates(all) where released.bytes < target {
            guard let scene = all.first(where: { $0.id == candidate.id }), let bytes = scene.evict() else { continue }
            released += ByteCount(bytes)
            disconnect(scene)
        }
        return released.bytes
    }
}
