#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc

/// memory.high throttling: sets `memory.high` below the own limit, so that running into the limit takes minutes instead
/// of 50 ms. Used only on request, and only on the own group.
///
/// The earlier value is restored at the end, if the present value is still ours.
final class MemoryHigh {
    private let kernel: any Kernel
    private let file: KernelFile
    private let path: String
    /// The value before ours, and ours; `nil` while ours is not set.
    private(set) var held: (earlier: Int, ours: Int)?
    /// The reason that the value is not set.
    private(set) var failure: String?
    /// True if another process has changed the value since. Then the library never sets a value again.
    private var isYielded = false

    init(_ directory: String, _ kernel: any Kernel, _ buffer: TextBuffer) {
        self.kernel = kernel
        path = directory + "/memory.high"
        file = KernelFile(path, kernel, buffer)
    }

    deinit { release() }

    /// Returns the target: a tenth below `maximum`, or 32 MiB if that is more, as measured to hold the fastest
    /// allocator. Whole pages; `nil` without a limit, or if nothing would be left.
    static func target(below maximum: Int) -> Int? {
        guard maximum != KernelText.unlimited else { return nil }
        let target = maximum - max(maximum / 10, 32 << 20)
        let page = Int(sysconf(Int32(_SC_PAGESIZE)))
        return target >= 32 << 20 ? target / page * page : nil
    }

    /// Sets or moves `memory.high` for a limit of `maximum` bytes, of which `usage` are in use. Restores the earlier
    /// value where the limit leaves nothing to set below that value. Returns true after a write.
    func apply(below maximum: Int, usage: Int) -> Bool {
        if isYielded { return false }
        guard let now = file.read(KernelText.limit) else {
            failure = "\(path): \(file.failure ?? .malformed)"
            return false
        }
        if let held, held.ours != now {
            self.held = nil
            isYielded = true
            failure = "another process changed \(path) to \(now == KernelText.unlimited ? "max" : String(now))"
            return false
        }
        let earlier = held?.earlier ?? now, wanted = Self.target(below: maximum)
        guard let target = wanted, target < earlier else {
            failure =
                wanted != nil
                ? "\(path) is already \(earlier)"
                : maximum == KernelText.unlimited
                    ? "the own group has no memory.max to set memory.high below"
                    : "memory.max is too small to set memory.high below"
            // The earlier value may be less than the usage, too (K27).
            guard let held, usage < held.earlier else { return false }
            release()
            return self.held == nil
        }
        if held?.ours == target { return false }
        // Writing less than the usage would reclaim within the write, for as long as that takes (K27).
        guard usage < target else {
            failure = "usage is above \(target), the value to set; retried later"
            return false
        }
        if let error = write(target) {
            failure = "\(path): \(error)"
            return false
        }
        held = (earlier, target)
        failure = nil
        return true
    }

    /// Restores the earlier value, if the present value is ours.
    func release() {
        guard let held, file.read(KernelText.limit) == held.ours else { return }
        if write(held.earlier) == nil { self.held = nil }
    }

    private func write(_ value: Int) -> KernelError? {
        kernel.write(Array((value == KernelText.unlimited ? "max" : String(value)).utf8), to: path)
    }
}
#endif
