import ArgumentParser
import Glibc
import Plimsoll
import PlimsollLinux

/// The demo's service, in a separate process.
struct ServiceCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "_service", abstract: "Part of `demo`.", shouldDisplay: false)

    @Flag(help: "Keep the cache in volatile memory, register it and run the manager.") var protected = false
    @Option(help: "Seconds a session lives.") var sessionLife: Double

    func run() async throws {
        let service = ThumbService(
            thumbs: ByteCache("thumbs", isVolatile: protected), sessionLife: .seconds(sessionLife))
        let (listener, port) = try reportingFailure { try Socket.listening() }
        service.serve(listener)
        var listening = ServiceEvent(.listening)
        listening.port = port
        listening.emit()

        if protected {
            try await serveProtected(service)
        } else {
            await ParentPipe.waitUntilClosed()
        }
        var end = ServiceEvent(.end)
        let statistics = service.thumbs.statistics
        (end.hits, end.misses, end.purged) = (statistics.hits, statistics.misses, statistics.purged)
        end.emit()
    }

    /// Does everything that differs with Plimsoll: registers the cache, which lies in volatile memory, and runs the
    /// manager.
    private func serveProtected(_ service: ThumbService) async throws {
        let manager = ResourceManager(source: LinuxPressureSource(), time: SteadyClock.timekeeper)
        manager.register(service.thumbs.purgeable)

        manager.onReport { report in
            if report.action == .release || report.releasedVolatile > .zero { ServiceEvent(report).emit() }
            guard report.taken > .zero else { return }
            var event = ServiceEvent(.drop, at: report.began)
            event.takenBytes = report.taken.bytes
            event.emit()
        }
        let levels = PlainThread { LevelReporter(manager: manager).run() }
        levels?.detach()
        async let _: Void = manager.run()
        await ParentPipe.waitUntilClosed()
    }
}

/// Prints each change of level. Observers are notified of each level at most once per rest interval; the chart needs
/// every change.
private struct LevelReporter {
    let manager: ResourceManager

    func run() {
        var reported = PressureLevel.normal
        while true {
            let level = manager.level
            if level != reported {
                reported = level
                var event = ServiceEvent(.level)
                event.level = level.description
                event.emit()
            }
            SteadyClock.sleep(.milliseconds(10))
        }
    }
}
