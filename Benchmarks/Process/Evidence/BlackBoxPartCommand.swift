import ArgumentParser
import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollLinux
import Synchronization

/// The memory that grows in a process until its end.
enum Grower: String, CaseIterable, ExpressibleByArgument {
    /// A registered purgeable that releases nothing.
    case thumbnails
    /// Memory that is registered nowhere.
    case unregistered
}

/// A service with a black box and some memory that grows until the kernel, the parent or the process itself ends it.
struct BlackBoxPartCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "_black-box", abstract: "Part of `plimsoll-bench evidence`.", shouldDisplay: false)

    @Option var file: String
    @Option var grower: Grower
    /// Bytes a second.
    @Option var rate: ByteCount
    /// Bytes at which the memory stops to grow.
    @Option var most: ByteCount
    /// Seconds after which the process aborts.
    @Option var abortAfter: Double?

    func run() throws {
        let manager = ResourceManager(source: LinuxPressureSource())
        let cache = PurgeableCache<Int, [UInt8]>("pages") { _, bytes in bytes.count }
        for key in 0..<200 { cache.insert([UInt8](repeating: 1, count: 64 << 10), forKey: key) }
        manager.register(cache)
        let held = Atomic<Int>(0)
        if grower == .thumbnails {
            manager.register("thumbnails", byteCount: { held.load(ordering: .relaxed) }, release: { _ in 0 })
        }
        try manager.keepBlackBox(at: file)
        Task { try await manager.run() }
        let began = SteadyClock.now, step = 1 << 20
        var memory: [TouchedMemory] = []
        while true {
            let elapsed = (SteadyClock.now - began).inSeconds
            if let abortAfter, elapsed >= abortAfter {
                // Without the report of the runtime's own handler.
                signal(SIGABRT, SIG_DFL)
                abort()
            }
            let wanted = min(most.bytes, Int(Double(rate.bytes) * elapsed))
            while memory.count * step < wanted {
                memory.append(try TouchedMemory(step))
                held.store(memory.count * step, ordering: .relaxed)
            }
            // A closure is asked for its bytes when memory is short, or by a status: as with metrics, every second.
            if grower == .thumbnails, Int(elapsed * 4) % 4 == 0 { _ = manager.status }
            SteadyClock.sleep(.milliseconds(5))
        }
    }
}
