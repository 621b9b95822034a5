import Glibc
import Synchronization

/// Memory that requests take. All pages are touched, and the memory is released with the value.
struct TouchedMemory: ~Copyable {
    private let start: UnsafeMutableRawPointer
    private let count: Int

    /// Takes `count` bytes from the process's allocator and touches every page.
    init(_ count: Int) {
        start = .allocate(byteCount: max(1, count), alignment: 16)
        self.count = count
        touch()
    }

    deinit { start.deallocate() }

    /// Writes to every page.
    func touch() {
        for offset in stride(from: 0, to: count, by: 4096) {
            start.storeBytes(of: UInt8(truncatingIfNeeded: offset >> 12), toByteOffset: offset, as: UInt8.self)
        }
    }
}

/// Holds the memory of a request across suspensions, and leaked memory across requests.
// Unchecked: one request at a time uses an instance, and no code uses the instances of the leak.
final class HeldMemory: @unchecked Sendable {
    private let memory: TouchedMemory
    let count: Int

    init(_ count: Int) {
        memory = TouchedMemory(count)
        self.count = count
    }

    func touch() { memory.touch() }
}

/// Requests that take much memory: uploads, exports, and a list that grows until emptied.
final class Work: Sendable {
    // Relaxed, all: numbers for the sampler.
    private let running = Atomic<Int>(0)
    private let stopped = Atomic<Int>(0)
    private let leaked = Mutex<[HeldMemory]>([])

    /// True while an upload or an export is in progress.
    var isBusy: Bool { running.load(ordering: .relaxed) > 0 }
    /// Exports that did not complete.
    var exportsStopped: Int { stopped.load(ordering: .relaxed) }

    /// Holds `bytes` for 300 ms.
    func upload(_ bytes: Int) async throws {
        running.add(1, ordering: .relaxed)
        defer { running.subtract(1, ordering: .relaxed) }
        let memory = HeldMemory(bytes)
        try await Task.sleep(for: .milliseconds(300))
        memory.touch()
    }

    /// Grows to `bytes` over 4 s in 64 steps, then releases all; throws if cancelled.
    func export(_ bytes: Int) async throws {
        running.add(1, ordering: .relaxed)
        defer { running.subtract(1, ordering: .relaxed) }
        var parts: [HeldMemory] = []
        for _ in 0..<64 {
            parts.append(HeldMemory(bytes / 64))
            try await Task.sleep(for: .microseconds(62_500))
        }
        withExtendedLifetime(parts) {}
    }

    /// Counts an export that did not complete.
    func noteStopped() { stopped.add(1, ordering: .relaxed) }

    /// Keeps `bytes` until the kept bytes reach `most`, then releases all of them.
    func leak(_ bytes: Int, most: Int) {
        let memory = HeldMemory(bytes)
        let dropped: [HeldMemory] = leaked.withLock { list in
            list.append(memory)
            guard list.reduce(0, { $0 + $1.count }) >= most else { return [] }
            defer { list = [] }
            return list
        }
        withExtendedLifetime(dropped) {}
    }
}
