import Plimsoll
import ServiceLifecycle

/// Exports one file after another: background tasks that tell how far they are.
struct ExportService: Service {
    let manager: ResourceManager

    func run() async throws {
        await cancelWhenGracefulShutdown {
            var number = 0
            while !Task.isCancelled {
                number += 1
                // An export that has to stop begins again with the next; nothing depends on it.
                try? await manager.withBackgroundTask("export \(number)") { task in
                    for row in 1...400 {
                        try await Task.sleep(for: .milliseconds(50))
                        task.progress(completed: row, total: 400)
                    }
                }
                try? await Task.sleep(for: .seconds(1))
            }
        }
    }
}
