import Glibc
import Plimsoll
import PlimsollLifecycle

/// Reports the owner of malloc, the return of freed memory, and the text for an operator.
public enum Report {
    /// Prints one line of words for `matrix` and one line for people, and ends the process: no more memory may be freed
    /// in a split heap.
    public static func finish(_ more: String...) async -> Never {
        guard let allocator = ResourceManager(source: NothingKnown()).capabilities["allocator"] else { _exit(1) }
        var words = [owner(allocator.detail), allocator.isLive ? "live" : "dead"]
        if ResourceManager.giveBackHeap() {
            words.append(returnsFreedMemory() ? "returned" : "kept")
            words.append(await returnsInBackground() ? "background" : "kept-in-background")
        }
        if let heap = ResourceManager.heap {
            let isPlausible = heap.allocated > 1024 && heap.active >= heap.allocated && heap.resident >= heap.active
            words.append(isPlausible ? "sampled" : "implausible \(heap)")
        }
        print((words + more).joined(separator: " "))
        print(allocator.detail, allocator.remedy.map { "; do: \($0)" } ?? "", separator: "")
        fflush(nil)
        _exit(0)
    }

    /// Returns the allocator, and its share of malloc, from the words for an operator.
    private static func owner(_ detail: String) -> String {
        let words = detail.split { $0 == " " || $0 == "," }
        if detail.hasPrefix("split heap: malloc is ") { return "\(words[4]) split" }
        if detail.hasPrefix("malloc is not the C library's") { return "unknown notOwned" }
        return "\(words[0]) \(detail.contains("does not own malloc") ? "notOwned" : "owned")"
    }

    private static let count = 16 << 10, size = 4096

    /// Takes 64 MiB in blocks of a page, touches them and frees them.
    ///
    /// - Returns: the resident bytes meanwhile.
    private static func fillAndFree() -> Int {
        let blocks = (0..<count).map { _ in malloc(size)! }
        for block in blocks { memset(block, 1, size) }
        let peak = resident
        for block in blocks { free(block) }
        return peak
    }

    private static func isReturned(from peak: Int) -> Bool { peak - resident > count * size / 10 * 9 }

    /// Returns true if nine tenths of the freed memory leave after a give-back on request.
    private static func returnsFreedMemory() -> Bool {
        let peak = fillAndFree()
        // jemalloc's own thread may be at work at this moment, and returns the pages in hand only at the end.
        for _ in 0..<10_000 {
            ResourceManager.giveBackHeap()
            if isReturned(from: peak) { return true }
            sched_yield()
        }
        return false
    }

    /// Returns true if the same memory leaves when the process goes into the background, without a request (C88).
    private static func returnsInBackground() async -> Bool {
        let manager = ResourceManager(source: NothingKnown())
        do { try await manager.lifecycle.launch() } catch { return false }
        let peak = fillAndFree()
        for _ in 0..<1000 {
            do {
                try await manager.lifecycle.enterBackground(cause: .operator)
                if isReturned(from: peak) { return true }
                // Another round follows, as jemalloc's own thread may have been at work.
                try await manager.lifecycle.enterForeground(cause: .operator)
            } catch { return false }
        }
        return false
    }

    /// A source without any knowledge of memory.
    private struct NothingKnown: PressureSource {
        var capabilities: Capabilities { Capabilities(signals: []) }
        var rings: Bool { false }
        func read(at time: Duration) throws(PressureSourceError) -> PressureReading { PressureReading(at: time) }
        func wait(atMost limit: Duration) {}
        func wake() {}
        func footprint() -> Footprint { Footprint() }
    }

    /// Resident bytes of this process.
    private static var resident: Int {
        let file = open("/proc/self/statm", O_RDONLY)
        defer { close(file) }
        return withUnsafeTemporaryAllocation(of: CChar.self, capacity: 256) { text in
            let length = read(file, text.baseAddress, 255)
            guard length > 0 else { return 0 }
            text[length] = 0
            var second: UnsafeMutablePointer<CChar>?
            strtol(text.baseAddress!, &second, 10)
            return strtol(second!, nil, 10) * sysconf(Int32(_SC_PAGESIZE))
        }
    }
}
