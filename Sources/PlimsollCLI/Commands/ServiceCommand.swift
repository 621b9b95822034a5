import ArgumentParser
import Glibc
import Plimsoll
import PlimsollLinux

/// The demo's service, in a process of its own.
struct ServiceCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(commandName: "_service", abstract: "Part of `demo`.", shouldDisplay: false)

    @Flag(help: "Keep the cache in volatile memory, register it and run the manager.") var protected = false
    @Option(help: "Seconds a session lives.") var sessionLife: Double

    func run() async throws {
        let service = ThumbService(thumbs: ByteCache("thumbs", isVolatile: protected), sessionLife: .seconds(sessionLife))
        let (listener, port) = try reportingFailure { try Socket.listening() }
        service.serve(listener)
        var listening = ServiceEvent(.listening)
        listening.port = port
        listening.emit()

        if protected {
            try await serveProtected(service)
        } else {
            await Leash.end()
        }
        var end = ServiceEvent(.end)
        let statistics = service.thumbs.statistics
        (end.hits, end.misses, end.purged) = (statistics.hits, statistics.misses, statistics.purged)
        end.emit()
    }

    /// The whole difference: what the cache is made of, that it is registered, and that the manager runs.
    private func serveProtected(_ service: ThumbService) async throws {
        let manager = ResourceManager(source: LinuxPressureSource(), time: SteadyClock.timekeeper)
        manager.register(service.thumbs.purgeable)

        manager.onReport { report in
            if report.action == .release { ServiceEvent(report).emit() }
        }
        let teller = PlainThread { Teller(manager: manager, thumbs: service.thumbs).run() }
        teller?.detach()
        async let _: Void = manager.run()
        await Leash.end()
    }
}

/// Tells each change of level, and what the kernel took. Observers would hear of each level at most once in a resting time; a picture wants them all.
private struct Teller {
    let manager: ResourceManager
    let thumbs: ByteCache

    private static let dropsEvery = 10

    func run() {
        var told = PressureLevel.normal
        var turns = 0
        while true {
            turns += 1
            let taken = turns % Self.dropsEvery == 0 ? thumbs.noticeDrops() : .zero
            if taken > .zero {
                var event = ServiceEvent(.drop)
                event.takenBytes = taken.bytes
                event.emit()
            }
            let level = manager.level
            if level != told {
                told = level
                var event = ServiceEvent(.level)
                event.level = level.description
                event.emit()
            }
            SteadyClock.sleep(.milliseconds(10))
        }
    }
}

/// The parent's end of our standard input: it ends with the parent, whatever becomes of that.
enum Leash {
    /// Returns when the parent lets go or is gone.
    static func end() async {
        // Without a thread to wait on there is no waiting: the service ends, which is seen.
        try? await PlainThread.run {
            var byte: UInt8 = 0
            while true {
                let count = read(STDIN_FILENO, &byte, 1)
                if count == 0 || (count < 0 && errno != EINTR) { break }
            }
        }
    }
}
