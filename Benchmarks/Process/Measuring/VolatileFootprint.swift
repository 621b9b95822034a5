import Glibc
import Plimsoll
import PlimsollDemos

/// Resident memory that a cache takes for each byte of values: keys, headers, sentinels and the index included.
struct VolatileFootprint {
    private static let payload = 400 << 20
    private static let samples = 8

    let valueSize: Int

    struct Result: Codable {
        var ratio: Double
    }

    /// Returns the highest ratio of some samples in the second half. The fill of the index's pages varies with the
    /// time since their last split.
    func measure() -> Result {
        let value = [UInt8](repeating: 1, count: valueSize)
        let before = Self.resident
        let cache = VolatileCache<UInt64, [UInt8]>("footprint")
        let count = Self.payload / valueSize
        var next = count / 2, worst = 0.0
        for number in 1...count {
            cache.insert(value, forKey: UInt64(number))
            guard number == next else { continue }
            next += count / 2 / (Self.samples - 1)
            worst = max(worst, Double(Self.resident - before) / Double(number * valueSize))
        }
        withExtendedLifetime(cache) {}
        return Result(ratio: worst)
    }

    /// Measures in a separate process, so that nothing else is counted.
    static func inChild(valueSize: Int) throws -> Double {
        let child = try ChildProcess(
            ChildProcess.itself, ["plimsoll-bench", "_volatile-rss", "--value-size", "\(valueSize)"],
            readsOutput: true)
        guard child.waitForEnd() == .exited(0), let line = child.output?.lines().first else {
            throw Failure.failed("the process that fills a cache ended without a result")
        }
        return try JSONLine.decode(Result.self, from: line).ratio
    }

    /// Resident bytes of this process.
    static var resident: Int {
        let pages =
            ControlFile.text("/proc/self/statm")?.split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0
        return pages * Int(sysconf(Int32(_SC_PAGESIZE)))
    }
}
