#if canImport(Glibc) && !PLIMSOLL_INERT
import Plimsoll

/// The machine's memory, which bounds every group and is the only limit where no group has one.
final class Machine {
    let file: KernelFile
    /// The last numbers; `nil` if they can't be read.
    private(set) var memory: MachineMemory?
    private var readAt: Duration?

    init(_ kernel: any Kernel, _ buffer: TextBuffer) { file = KernelFile("/proc/meminfo", kernel, buffer) }

    /// Returns the numbers. Reads them again as soon as half the available memory could be used at 10 GB/s, and at
    /// least once a second.
    func memory(at now: Duration) -> MachineMemory? {
        let pause = Duration.nanoseconds(Int64(min(1e9, Double(memory?.available ?? 0) / 20)))
        guard readAt.isDue(after: pause, at: now) else { return memory }
        readAt = now
        memory = file.read { MachineMemory($0) }
        return memory
    }
}
#endif
