import Foundation
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle
@testable import PlimsollLinux

/// The state of scenes on the real file system: a killed process leaves the contents of the directory at that instant.
@Suite(.serialized, .timeLimit(.minutes(5))) struct SceneStateKillTests {
    let directory = TemporaryDirectory()

    /// Returns a life cycle whose deadlines never pass, and whose scenes only the test suspends: the saved states must
    /// not depend on the machine's speed.
    private static func lifecycle() -> Lifecycle {
        let lifecycle = Lifecycle(ResourceManager(source: ScriptedPressureSource()))
        lifecycle.policy.backgroundDeadline = .seconds(3600)
        lifecycle.policy.sceneSuspendsAfter = nil
        return lifecycle
    }

    /// Returns the state to which the next run would restore the scene after a kill now.
    private static func afterKill(_ directory: String, _ id: String) async throws -> UInt8? {
        let copy = TemporaryDirectory()
        for name in try FileManager.default.contentsOfDirectory(atPath: directory) {
            try FileManager.default.copyItem(atPath: "\(directory)/\(name)", toPath: "\(copy.path)/\(name)")
        }
        let restored = Mutex<UInt8?>(nil)
        let scene = lifecycle().connectScene(id, reason: .systemRequest) { scene in
            scene.preserve(
                in: FileStateStore(directory: copy.path), snapshot: { [] }, restore: { bytes in restored.withLock { $0 = bytes.first } })
        }
        await scene.connected()
        return restored.withLock { $0 }
    }

    @Test func `C41 C43 C90 C97 a scene killed at any point after leaving the foreground comes back in the saved state`() async throws {
        let path = directory.path, state = Mutex<UInt8>(1), points = Mutex<[String]>([])
        @Sendable func verify(_ point: String) async throws {
            let seen = try await Self.afterKill(path, "a")
            points.withLock { $0.append("\(point): \(seen.map { "\($0)" } ?? "nothing")") }
        }
        let lifecycle = Self.lifecycle()
        let scene = lifecycle.connectScene("a", reason: .userRequest) { scene in
            scene.preserve(
                in: FileStateStore(directory: path), snapshot: { state.withLock { [$0] } },
                restore: { bytes in state.withLock { $0 = bytes[0] } })
            scene.observe(
                "flush",
                onBackground: { _ in
                    try await verify("on the way to the background")
                    state.withLock { $0 = 2 }
                })
            scene.onDisconnect("last") { _ in try await verify("while it is disconnected") }
        }
        await scene.connected()
        lifecycle.observe("process", onInactive: { _ in try await verify("the process leaves the front") })
        try await scene.enterBackground(cause: .idle)
        try await verify("in the background")
        state.withLock { $0 = 3 }
        try await scene.suspend(cause: .idle)
        try await verify("suspended")
        state.withLock { $0 = 4 }
        #expect(await lifecycle.checkpoint(within: .seconds(30)).isEmpty)
        try await verify("after a checkpoint")
        try await scene.enterForeground(cause: .operator)
        state.withLock { $0 = 5 }
        try await lifecycle.interrupt()
        try await verify("interrupted")
        state.withLock { $0 = 6 }
        try await lifecycle.enterBackground(cause: .supervisor)
        try await verify("the process in the background")
        state.withLock { $0 = 7 }
        await scene.disconnect(cause: .pressure)
        try await verify("disconnected")
        #expect(
            points.withLock { $0 } == [
                "on the way to the background: 1", "the process leaves the front: 2", "in the background: 2", "suspended: 3", "after a checkpoint: 4",
                // A change during an interruption is saved by the next transition.
                "the process leaves the front: 5", "interrupted: 5", "on the way to the background: 5", "the process in the background: 2",
                "while it is disconnected: 7", "disconnected: 7",
            ])
    }
}
