public import Plimsoll
import Synchronization

extension Lifecycle {
    /// Connects a scene, which comes up active or in the background according to `reason` (C95). Launches the process
    /// if needed.
    ///
    /// If a scene with that id is connected, returns that scene. A user's request brings the scene to the front; a
    /// system request ends a suspension. If the scene is being disconnected, a new scene waits for the end, then
    /// replaces the former scene.
    ///
    /// - Parameters:
    ///   - id: unique id; the scene's snapshot is stored under this id.
    ///   - reason: reason for the connection, which decides the first state: `.systemRequest` brings the scene up in
    ///     the background, and `.userRequest`, as any other cause, in front.
    ///   - configure: called before the first step, to add handlers, caches and state to restore. Must not wait for
    ///     the scene. Neither must handlers of the launch: a scene takes the first step after the launch.
    @discardableResult
    public func connectScene(_ id: String, reason: LifecycleCause, configure: (Scene) -> Void = { _ in }) -> Scene {
        let made = Scene(id, reason, in: self)
        let (scene, former) = scenesByID.withLock { scenes in
            let present = scenes[id]
            if let present, !present.isEnding { return (present, nil as Scene?) }
            scenes[id] = made
            return (made, present)
        }
        guard scene === made else {
            threads.run {
                if reason == .systemRequest {
                    await scene.wake()
                } else {
                    _ = try? await scene.enterForeground(cause: .operator)
                }
            }
            return scene
        }
        configure(scene)
        registerEviction()
        // Under the scene's lock: a request that comes meanwhile counts for the scene and for the process.
        scene.contents.withLock { contents in
            let wanted = contents.wanted
            desired.withLock { desired in
                desired.hasHadScenes = true
                desired.claims[scene.claim] = .init(state: wanted, isScene: true)
            }
        }
        let task = threads.run {
            await self.launchIfNeeded()
            // The new scene restores the state that the former one saves last.
            _ = try? await former?.follow(.operator, within: self.policy.backgroundDeadline)
            scene.restore()
            let report = try? await scene.reconcile(.launch, within: self.policy.backgroundDeadline)
            // A scene that ends before the first step takes none in which to let go.
            if let report, report.target == .notRunning, !report.isSuperseded {
                scene.letGoOfAll()
                scene.tasks.close()
            }
        }
        scene.contents.withLock { $0.connecting = task }
        return scene
    }

    /// The connected scenes, by id.
    public var scenes: [Scene] { scenesByID.withLock { Array($0.values) }.sorted { $0.id < $1.id } }

    /// Keeps the process at `state` or above, regardless of the scenes, until the registration is cancelled (C94).
    public func hold(_ state: LifecycleState) -> Registration {
        let id = newID()
        desired.withLock { $0.claims[id] = .init(state: state, isScene: false) }
        threads.run { try? await self.followScenes(.operator) }
        return Registration(close: {}) { [weak self] in
            guard let self else { return }
            self.desired.withLock { $0.claims[id] = nil }
            self.threads.run { try? await self.followScenes(.operator) }
        }
    }

    /// Brings the process to the state that the scenes request.
    ///
    /// On the way down the process stays at or above each scene that is still on the way (C94). A request from within a
    /// handler is carried out without waiting, because the process may be waiting for that handler.
    ///
    /// - Parameter needed: returns the state to which a scene is about to rise. Waits until the process is there,
    ///   whatever other requests have begun that way or take it over: the process goes first (C94).
    func followScenes(
        _ cause: LifecycleCause, upTo needed: @Sendable () -> LifecycleState = { .notRunning }
    ) async throws {
        if AsyncCallGate.isInside {
            threads.run { await AsyncCallGate.outside { _ = try? await self.followScenes(cause) } }
            return
        }
        let aim: @Sendable () -> LifecycleState = {
            let here = self.unit.engine.current
            return self.desired.withLock { $0.upheld(at: here) }
        }
        // A launch takes the first step itself, and a termination the last one, after the scenes.
        while !desired.withLock({ $0.isTerminating }), unit.engine.target > .notRunning,
            unit.engine.current < min(needed(), aim()) || aim() != unit.engine.target
        {
            recordReport(try await unit.engine.request(cause, within: policy.backgroundDeadline, aim))
        }
    }

    /// Brings all scenes to their desired states, except scenes that are still being connected.
    func reconcileScenes(_ cause: LifecycleCause, within budget: Duration) async {
        await withTaskGroup(of: Void.self) { group in
            for scene in scenes where scene.takesSteps {
                group.addTask {
                    // Again if another request took over the way down: the process waits for the scene (C94).
                    while let report = try? await scene.follow(cause, within: budget), report.isSuperseded,
                        scene.aim < .inactive
                    {}
                }
            }
        }
    }

    /// Removes a scene that has ended.
    func forget(_ scene: Scene) {
        let gone = scenesByID.withLock { scenes in
            scenes[scene.id] === scene ? scenes.removeValue(forKey: scene.id) : nil
        }
        desired.withLock { $0.claims[scene.claim] = nil }
        scene.forgetState()
        scene.forgetWarnings()
        withExtendedLifetime(gone) {}
    }

    private func registerEviction() {
        guard evicts.exchange(true, ordering: .relaxed) == false else { return }
        for state in [LifecycleState.suspended, .background] {
            _ = register(
                SceneEviction(
                    of: state, scenes: { [weak self] in self?.scenes ?? [] },
                    disconnect: { [threads] scene in threads.run { await scene.disconnect(cause: .pressure) } }))
        }
    }
}
