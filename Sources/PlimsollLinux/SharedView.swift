import Plimsoll
import Synchronization

/// What other threads may ask a source for, kept apart from what its observing thread owns.
///
/// Mutable state: `capabilities` and `files` behind their locks, `ringing` and `announced` atomics. `capabilities` changes rarely; `files` is held
/// for the length of two reads; neither is held while the other is taken.
final class SharedView: Sendable {
    let wakeBell: WakeBell
    private let capabilities = Mutex(Capabilities(footing: .inert, signals: []))
    private let files: Mutex<FootprintFiles>
    /// Relaxed is enough: it sets how long the observing thread itself waits, and that thread wrote it.
    private let ringing = Atomic<Bool>(false)
    /// The highest level announced since the last reading, as its number plus one; 0 for none. Relaxed is enough: a level on its own; the bell orders what follows.
    private let announced = Atomic<UInt8>(0)

    init(_ kernel: any Kernel) {
        wakeBell = WakeBell(kernel)
        files = Mutex(FootprintFiles(kernel))
    }

    var currentCapabilities: Capabilities { capabilities.withLock { $0 } }
    func setCapabilities(_ new: Capabilities) { capabilities.withLock { $0 = new } }

    var rings: Bool { ringing.load(ordering: .relaxed) }
    func setRings(_ rings: Bool) { ringing.store(rings, ordering: .relaxed) }

    func announce(_ level: PressureLevel) {
        announced.max(level.rawValue + 1, ordering: .relaxed)
        wakeBell.ring()
    }

    /// The highest level announced since the last call; `nil` for none.
    func takeAnnounced() -> PressureLevel? {
        // Seldom anything: a load costs less than an exchange.
        guard announced.load(ordering: .relaxed) > 0 else { return nil }
        return PressureLevel(rawValue: announced.exchange(0, ordering: .relaxed) &- 1)
    }

    func footprint() -> Footprint { files.withLock { $0.footprint() } }
    func setUsagePath(_ path: String?) { files.withLock { $0.setUsagePath(path) } }

    /// Files of its own, as the observing thread may close its at any time.
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
