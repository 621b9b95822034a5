import Glibc
import Plimsoll
import Synchronization

/// Memory that is asked for and touched at a given speed, and kept.
final class Ramp: Sendable {
    private static let chunk = 1 << 20

    private let left: Atomic<Int>
    private let taken = Atomic<Int>(0)
    private let crossing = Atomic<Int>(0)
    private let bytesPerSecond: Double?
    private let threads: Int
    private let probe: UsageProbe

    /// - Parameters:
    ///   - probe: tells the allocating thread itself, after each chunk, when usage crosses the line.
    init(_ size: ByteCount, bytesPerSecond: Double?, threads: Int = 1, probe: UsageProbe) {
        left = Atomic(size.bytes)
        self.bytesPerSecond = bytesPerSecond
        self.threads = threads
        self.probe = probe
    }

    /// When usage crossed the line, if it did.
    var crossed: Duration? {
        let microseconds = crossing.load(ordering: .relaxed)
        return microseconds == 0 ? nil : .microseconds(microseconds)
    }

    /// Takes it all; returns when everything is touched.
    func run() {
        let others = (1..<threads).compactMap { _ in PlainThread { [self] in climb() } }
        climb()
        for thread in others { thread.join() }
    }

    private func climb() {
        let start = SteadyClock.now
        while left.wrappingSubtract(Self.chunk, ordering: .relaxed).oldValue > 0 {
            guard let chunk = mmap(nil, Self.chunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), chunk != MAP_FAILED else {
                // No limit of the group does this: address space or the machine itself has run out.
                Output.error("plimsoll: mmap: \(String(cString: strerror(errno)))")
                exit(1)
            }
            let page = Int(sysconf(Int32(_SC_PAGESIZE)))
            for offset in stride(from: 0, to: Self.chunk, by: page) { chunk.storeBytes(of: 1, toByteOffset: offset, as: UInt8.self) }
            let total = taken.wrappingAdd(Self.chunk, ordering: .relaxed).newValue
            if crossing.load(ordering: .relaxed) == 0, probe.isAboveLine() {
                crossing.store(Int(SteadyClock.now.inNanoseconds / 1000), ordering: .relaxed)
            }
            if let bytesPerSecond { SteadyClock.sleep(until: start + .seconds(Double(total) / bytesPerSecond)) }
        }
    }
}

/// Tells whether what a group holds, clean page cache apart, is above a line. Reads open files: some microseconds.
final class UsageProbe: Sendable {
    private let usage: Int32
    private let statistics: Int32
    private let line: Int
    private let keys: (file: String, shmem: String)

    init(group: ControlGroup, line: ByteCount) {
        let isTwo = group.version == .two
        usage = open(group.memory + (isTwo ? "/memory.current" : "/memory.usage_in_bytes"), O_RDONLY | O_CLOEXEC)
        statistics = open(group.memory + "/memory.stat", O_RDONLY | O_CLOEXEC)
        keys = isTwo ? ("file", "shmem") : ("total_cache", "total_shmem")
        self.line = line.bytes
    }

    deinit {
        close(usage)
        close(statistics)
    }

    func isAboveLine() -> Bool {
        // The cheap look first; page cache only matters when that one is above the line.
        guard let used = Int(read(usage).prefix { !$0.isWhitespace }), used >= line else { return false }
        let text = read(statistics)
        let file = ControlFile.value(of: keys.file, in: text) ?? 0, shmem = ControlFile.value(of: keys.shmem, in: text) ?? 0
        return used - max(0, file - shmem) >= line
    }

    private func read(_ descriptor: Int32) -> String {
        withUnsafeTemporaryAllocation(byteCount: 8192, alignment: 1) { buffer in
            let count = pread(descriptor, buffer.baseAddress, buffer.count, 0)
            return String(decoding: buffer[..<max(0, count)], as: UTF8.self)
        }
    }
}
