import Glibc
import Plimsoll
import PlimsollDemos

/// Measures the begin and end of an access to a fully resident `PurgeableBuffer`.
struct BufferBench {
    /// Medians of the thread's processor time, in microseconds a MiB. Processor time excludes the work of neighbours.
    struct Result {
        var begin: Double
        var end: Double
        /// Releasing ordinary pages of the same size and faulting them in again: the cost of the alternative.
        var refault: Double
    }

    let size: ByteCount
    let rounds: Int

    func run(usesHugePages: Bool) throws -> Result {
        let buffer = PurgeableBuffer("bench", byteCount: size.bytes, usesHugePages: usesHugePages, isGuarded: false)
        let ordinary = try OrdinaryPages(size, usesHugePages: usesHugePages)
        defer { ordinary.unmap() }
        var begins: [Double] = [], ends: [Double] = [], refaults: [Double] = []
        // The first round faults the pages in and does not count.
        for round in 0...rounds {
            let start = SteadyClock.thread
            guard buffer.beginAccess() else {
                throw Failure.failed("the kernel reclaimed the buffer; memory is too short here for the measurement")
            }
            let began = SteadyClock.thread
            buffer.endAccess()
            let ended = SteadyClock.thread
            // Alternate, so that drift of the machine affects both alike; seldom, since this takes long.
            if round % 8 == 0 {
                ordinary.giveBack()
                ordinary.touch()
                if round > 0 { refaults.append(perMebibyte(SteadyClock.thread - ended)) }
            }
            guard round > 0 else { continue }
            begins.append(perMebibyte(began - start))
            ends.append(perMebibyte(ended - began))
        }
        return Result(begin: median(begins) ?? 0, end: median(ends) ?? 0, refault: median(refaults) ?? 0)
    }

    private func perMebibyte(_ time: Duration) -> Double { time.milliseconds * 1000 / (Double(size.bytes) / 1_048_576) }
}

/// Ordinary anonymous memory.
private struct OrdinaryPages {
    private let start: UnsafeMutableRawPointer
    private let size: Int
    private let page = Int(sysconf(Int32(_SC_PAGESIZE)))

    init(_ size: ByteCount, usesHugePages: Bool) throws {
        self.size = size.bytes
        guard let start = mmap(nil, size.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
            start != MAP_FAILED
        else {
            throw Failure.failed("cannot map memory: \(String(cString: strerror(errno)))")
        }
        self.start = start
        madvise(start, size.bytes, usesHugePages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE)
        touch()
    }

    func touch() {
        for offset in stride(from: 0, to: size, by: page) {
            start.storeBytes(of: 1, toByteOffset: offset, as: UInt8.self)
        }
    }
    func giveBack() { madvise(start, size, MADV_DONTNEED) }
    func unmap() { munmap(start, size) }
}
