import ArgumentParser
import Plimsoll
import PlimsollDemos
import PlimsollLinux

/// Measures a purge of a volatile cache: the share that the kernel sees, the cost, and the stalls of other threads.
struct GiveBackBench: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "giveback")

    @Option(help: "Number of runs; each run takes every measurement once.") var runs = 9
    @Option(help: "Memory released at a time.") var size = ByteCount.gibibytes(1)

    func validate() throws {
        try Allowed.count(runs, "--runs", in: 1...1000)
        try Allowed.size(size, "--size", in: .mebibytes(2) ... .gibibytes(3))
    }

    func run() throws {
        try reportingFailure {
            var unmapping: [Double] = [], small: [Double] = [], huge: [Double] = [], falls: [Double] = []
            var stalls: [Double] = [], quiet: [Double] = []
            var hasHugePages = true
            for _ in 0..<runs {
                let bare = try RegionMemory(size)
                unmapping.append(try measure { try bare.unmap() }.milliseconds)
                let ordinary = FilledCache(size, hugePages: false)
                let plain = try measure { try ordinary.giveBack() }
                small.append(plain.milliseconds)
                let cache = FilledCache(size, hugePages: true)
                hasHugePages = hasHugePages && Self.hugeBytes * 10 > size.bytes * 9
                let quick = try measure { try cache.giveBack() }
                huge.append(quick.milliseconds)
                falls += [plain.share, quick.share]
                let (during, without) = try stall()
                stalls.append(during.milliseconds)
                quiet.append(without.milliseconds)
            }
            Bench.figure("giveback.fall", (falls.min() ?? 0) * 100, "percent")
            if let small = median(small), let bare = median(unmapping) {
                Bench.figure("giveback.cpu", small, "ms")
                Bench.figure("giveback.cpu.munmap", bare, "ms")
                Bench.figure("giveback.cpu.ratio", small / bare, "ratio")
            }
            if hasHugePages, let huge = median(huge) {
                Bench.figure("giveback.thp", huge, "ms")
            } else {
                Output.line(
                    "# giveback.thp: the kernel gave no huge pages (/sys/kernel/mm/transparent_hugepage/enabled)")
            }
            if let stall = median(stalls), let quiet = median(quiet) {
                Bench.figure("giveback.malloc-stall", stall, "ms")
                Bench.figure("giveback.malloc-stall.worst", stalls.max() ?? stall, "ms")
                Bench.figure("giveback.malloc-stall.without", quiet, "ms")
            }
        }
    }

    /// Runs `act`, which gives memory back. Returns this thread's processor time, and the fall of resident memory as
    /// a share of `size`.
    private func measure(_ act: () throws -> Void) throws -> (milliseconds: Double, share: Double) {
        let source = LinuxPressureSource()
        let before = source.footprint().resident
        let began = SteadyClock.thread
        try act()
        let took = SteadyClock.thread - began
        let fell = before - source.footprint().resident
        return (took.milliseconds, Double(fell.bytes) / Double(size.bytes))
    }

    /// Returns the longest allocation step of another thread while memory is given back, and the longest one in a
    /// quiet period of the same length.
    private func stall() throws -> (during: Duration, without: Duration) {
        try AllocatingThread.beside { thread in
            let cache = FilledCache(size, hugePages: false)
            var took = Duration.zero
            let during = try thread.longestStep {
                let began = SteadyClock.now
                try cache.giveBack()
                took = SteadyClock.now - began
            }
            return (during, thread.longestStep { SteadyClock.sleep(took) })
        }
    }

    /// Bytes of this process in huge pages.
    private static var hugeBytes: Int {
        let lines = ControlFile.text("/proc/self/smaps_rollup")?.split(separator: "\n") ?? []
        let words = lines.first { $0.hasPrefix("AnonHugePages:") }?.split(separator: " ") ?? []
        return (words.count > 1 ? Int(words[1]) ?? 0 : 0) << 10
    }
}
