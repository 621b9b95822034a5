#if canImport(Glibc) && !PLIMSOLL_INERT
import Plimsoll
import Synchronization

/// The parts of a source that other threads use, kept apart from those of the observing thread.
///
/// Mutable state: `capabilities` and `files` behind their locks, `ringing` and `announced` atomics. `capabilities`
/// changes rarely. `files` is held for the length of two reads. Neither lock is held while the other is acquired.
final class SharedView: Sendable {
    let wakeup: Wakeup
    private let capabilities = Mutex(Capabilities(support: .inert, signals: []))
    private let files: Mutex<FootprintFiles>
    /// Relaxed is enough: the value sets the wait of the observing thread, and that thread wrote it.
    private let ringing = Atomic<Bool>(false)
    /// The highest level announced since the last reading, as its number plus one; 0 for none. Relaxed is enough: the
    /// level is independent of other data, and the wake-up orders later accesses.
    private let announced = Atomic<UInt8>(0)

    init(_ kernel: any Kernel) {
        wakeup = Wakeup(kernel)
        files = Mutex(FootprintFiles(kernel))
    }

    var currentCapabilities: Capabilities { capabilities.withLock { $0 } }
    func setCapabilities(_ new: Capabilities) { capabilities.withLock { $0 = new } }

    var rings: Bool { ringing.load(ordering: .relaxed) }
    func setRings(_ rings: Bool) { ringing.store(rings, ordering: .relaxed) }

    func announce(_ level: PressureLevel) {
        announced.max(level.rawValue + 1, ordering: .relaxed)
        wakeup.ring()
    }

    /// Returns the highest level announced since the last call; `nil` for none.
    func takeAnnounced() -> PressureLevel? {
        // There is seldom an announcement, and a load costs less than an exchange.
        guard announced.load(ordering: .relaxed) > 0 else { return nil }
        return PressureLevel(rawValue: announced.exchange(0, ordering: .relaxed) &- 1)
    }

    func footprint() -> Footprint { files.withLock { $0.footprint() } }
    func setUsagePath(_ path: String?) { files.withLock { $0.setUsagePath(path) } }

    /// The files for `footprint`. Separate, because the observing thread may close the other files at any time.
    private final class FootprintFiles {
        private let kernel: any Kernel
        private let buffer = TextBuffer(capacity: 1024)
        private let resident: KernelFile
        private let machine: KernelFile
        private var usage: KernelFile?

        init(_ kernel: any Kernel) {
            self.kernel = kernel
            resident = KernelFile("/proc/self/statm", kernel, buffer)
            machine = KernelFile("/proc/meminfo", kernel, buffer)
        }

        func setUsagePath(_ path: String?) {
            if usage?.path != path { usage = path.map { KernelFile($0, kernel, buffer) } }
        }

        func footprint() -> Footprint {
            var result = Footprint()
            if let pages = resident.read({ ProcessMemory.residentPages($0) }) { result.resident = .pages(pages) }
            if let usage {
                result.usage = ByteCount(usage.read(KernelText.bytes) ?? 0)
            } else if let memory = machine.read({ MachineMemory($0) }) {
                result.usage = ByteCount(memory.total - memory.available)
            }
            return result
        }
    }
}
#endif
