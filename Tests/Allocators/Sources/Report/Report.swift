import Glibc
import Plimsoll

/// Says who owns malloc here, whether freed memory really comes back, and what an operator would be told.
public enum Report {
    /// Prints one line of words for `matrix`, one for people, and ends the process: no more may be freed in a split heap.
    public static func finish(_ more: String...) -> Never {
        let allocator = HeapAllocator.current
        var words = ["\(allocator.kind)", "\(allocator.ownership)", allocator.signal.isLive ? "live" : "dead"]
        if allocator.canGiveBack { words.append(returnsFreedMemory(allocator) ? "returned" : "kept") }
        if let sample = allocator.sample() { words.append(sample.isPlausible ? "sampled" : "nonsense \(sample)") }
        print((words + more).joined(separator: " "))
        print(allocator.signal.detail, allocator.signal.remedy.map { "; do: \($0)" } ?? "", separator: "")
        fflush(nil)
        _exit(0)
    }

    /// Whether nine tenths of 64 MiB in blocks of a page are out of memory once they were freed and asked for.
    private static func returnsFreedMemory(_ allocator: HeapAllocator) -> Bool {
        let count = 16 << 10, size = 4096
        let blocks = (0..<count).map { _ in malloc(size)! }
        for block in blocks { memset(block, 1, size) }
        let peak = resident
        for block in blocks { free(block) }
        allocator.giveBack(.light)
        // jemalloc's own thread may just now be at it, and what it has in hand leaves when it is done.
        for _ in 0..<10_000 {
            allocator.giveBack(.full)
            if peak - resident > count * size / 10 * 9 { return true }
            sched_yield()
        }
        return false
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

extension HeapSample {
    fileprivate var isPlausible: Bool { allocated > .kibibytes(1) && active >= allocated && resident >= active }
}
