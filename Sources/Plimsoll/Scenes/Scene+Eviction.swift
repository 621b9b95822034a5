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
            id: id, bytes: byteCount, idle: lifecycle.alarms.heartbeat.running - contents.withLock { $0.lastUsed }, state: state,
            hasTasks: tasks.hasLiveTasks)
    }

    /// Under which its snapshot is kept.
    private var key: String { "scene-\(id)" }

    func writeSnapshot() throws {
        guard let preserved = contents.withLock({ $0.preserved }) else { return }
        try preserved.store.write(key, preserved.snapshot())
    }

    /// Gives back what a snapshot kept.
    func restore() throws {
        guard let preserved = contents.withLock({ $0.preserved }), let bytes = try preserved.store.read(key) else { return }
        try preserved.restore(bytes)
    }

    /// Lets go of all its caches; the bytes they said they let go of.
    @discardableResult
    func letGoOfAll() -> ByteCount {
        let holders = contents.withLock { contents in
            defer { contents.holders = [] }
            return contents.holders
        }
        return holders.reduce(.zero) { sum, holder in
            let released = holder.purgeable.release(holder.purgeable.heldBytes)
            holder.registration.cancel()
            return sum + max(.zero, released)
        }
    }
}

/// The scenes that may be disconnected, as something that gives way: last, and as a whole each.
final class SceneEviction: Purgeable {
    private let scenes: @Sendable () -> [Scene]
    /// Has a scene that was let go of end in good order.
    private let disconnect: @Sendable (Scene) -> Void

    init(scenes: @escaping @Sendable () -> [Scene], disconnect: @escaping @Sendable (Scene) -> Void) {
        self.scenes = scenes
        self.disconnect = disconnect
    }

    var name: String { "scenes in the background" }
    var rebuildCost: RebuildCost { .precious }
    var heldBytes: ByteCount { Scene.Candidate.order(scenes().map(\.candidate)).reduce(.zero) { $0 + $1.bytes } }

    /// Evicts one scene after the other until enough was let go of. A scene whose snapshot cannot be written stays.
    func release(_ target: ByteCount) -> ByteCount {
        let all = scenes()
        var released = ByteCount.zero
        for candidate in Scene.Candidate.order(all.map(\.candidate)) where released < target {
            // Brought to the front meanwhile: it stays.
            guard let scene = all.first(where: { $0.id == candidate.id }), scene.state < .inactive, (try? scene.writeSnapshot()) != nil else {
                continue
            }
            released += max(candidate.bytes, scene.letGoOfAll())
            disconnect(scene)
        }
        return released
    }
}
