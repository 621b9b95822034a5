extension Scene {
    /// As `ResourceManager.beginBackgroundTask`, on the allowance of this scene.
    public func beginBackgroundTask(
        _ name: String, file: StaticString = #fileID, line: UInt = #line,
        onExpiration: @escaping @Sendable (BackgroundTask, ExpirationReason) -> Void
    ) -> BackgroundTask {
        tasks.begin(name, origin: "\(file):\(line)", handler: .blocking(onExpiration))
    }

    /// The background tasks of this scene, oldest first.
    public var backgroundTasks: [BackgroundTaskStatus] { tasks.statuses }
}
