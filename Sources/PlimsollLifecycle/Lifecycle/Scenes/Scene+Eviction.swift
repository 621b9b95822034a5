import Plimsoll
import Synchronization

extension Scene {
    /// The properties that decide which scene is evicted first. A value.
    struct UnitSnapshot: Sendable, Hashable {
        var id: String
        var bytes: ByteCount
        var idle: Duration
        var state: LifecycleState
        var hasTasks: Bool

        /// Returns the scenes that may be evicted, in the order of eviction. Only idle scenes, the largest first; of
        /// equals, the one unused for longest (C96, T33).
        static func order(_ candidates: [UnitSnapshot]) -> [UnitSnapshot] {
            candidates.filter {
                ($0.state == .background || $0.state == .suspended) && !$0.hasTasks && $0.bytes > .zero
            }
            .sorted { ($0.bytes, $0.idle, $1.id) > ($1.bytes, $1.idle, $0.id) }
        }
    }

    var candidate: UnitSnapshot {
        UnitSnapshot(
            id: id, bytes: ByteCount(byteCount),
            idle: lifecycle.alarms.heartbeat.running - contents.withLock { $0.lastUsed }, state: state,
            hasTasks: tasks.hasLiveTasks)
    }

    /// True if disconnection was requested. The scene enters no other state then.
    var isEnding: Bool { contents.withLock { $0.wanted == .notRunning } }

    /// Saves the scene and releases the scene's memory, unless meanwhile the scene was brought to the front or has
    /// started work.
    ///
    /// Returns the bytes released; `nil` if the scene stays. The caller must still disconnect the scene. Blocks.
    func evict() -> Int? {
        let bytes = byteCount
        guard mayGo, save(within: lifecycle.policy.backgroundDeadline).isEmpty, !tasks.hasLiveTasks else { return nil }
        // Exactly one side wins the lock. Either a request brings the scene to the front, and the scene stays. Or
        // eviction wins, and the scene comes back only by a new connection.
        let goes = contents.withLock { contents in
            guard contents.wanted > .notRunning, mayGo(contents.wanted) else { return false }
            contents.wanted = .notRunning
            return true
        }
        return goes ? max(bytes, letGoOfAll()) : nil
    }

    private var mayGo: Bool { mayGo(contents.withLock { $0.wanted }) }

    /// Returns true if the scene is behind the front and no request brings it to the front.
    private func mayGo(_ wanted: LifecycleState) -> Bool {
        wanted > .notRunning && state < .inactive && state > .notRunning
            && lifecycle.desired.withLock { $0.scene(wanted) } < .inactive
    }
}

/// A purgeable that evicts whole scenes which are in one state behind the front.
///
/// Suspended scenes go before scenes in the background (C90). Suspended scenes are released like any cache that is
/// expensive to rebuild; scenes in the background only when memory is critical. A supervisor or an operator that
/// releases everything reaches both.
final class SceneEviction: Purgeable {
    let name: String
    let rebuildCost: RebuildCost
    private let state: LifecycleState
    private let scenes: @Sendable () -> [Scene]
    /// Disconnects an evicted scene in good order.
    private let disconnect: @Sendable (Scene) -> Void

    init(
        of state: LifecycleState, scenes: @escaping @Sendable () -> [Scene],
        disconnect: @escaping @Sendable (Scene) -> Void
    ) {
        let isSuspended = state == .suspended
        name = isSuspended ? "suspended scenes" : "scenes in the background"
        rebuildCost = isSuspended ? .expensive : .precious
        self.state = state
        self.scenes = scenes
        self.disconnect = disconnect
    }

    private func candidates(_ scenes: [Scene]) -> [Scene.UnitSnapshot] {
        Scene.UnitSnapshot.order(scenes.map(\.candidate).filter { $0.state == state })
    }

    var heldBytes: Int { candidates(scenes()).reduce(ByteCount.zero) { $0 + $1.bytes }.bytes }

    /// Evicts scenes one after the other until `target` bytes are released. A scene whose snapshot cannot be written
    /// stays.
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
