import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollLinux
import Synchronization

/// Times the first touch of a page in a group that a cache has filled, and the same with an empty cache. Runs
/// alternate.
struct VolatileFaults {
    private static let limit = ByteCount.mebibytes(256)
    private static let pairs = 3

    let length: Duration

    func report() throws {
        var empty: [Double] = [], filled: [Double] = [], resident: [Double] = []
        for _ in 0..<Self.pairs {
            empty.append(try inGroup(isFilled: false).p99Microseconds)
            let result = try inGroup(isFilled: true)
            filled.append(result.p99Microseconds)
            resident.append(Double(result.residentBytes) / 1_048_576)
        }
        Bench.figure("volatile.fault-p99.empty", median(empty) ?? .nan, "us")
        Bench.figure("volatile.fault-p99.filled", median(filled) ?? .nan, "us")
        Bench.figure("volatile.fault-p99.ratio", median(zip(filled, empty).map { $0 / $1 }) ?? .nan, "ratio")
        // The claim includes that the cache did fill the group.
        Bench.figure("volatile.fault-resident", median(resident) ?? .nan, "MiB")
    }

    private func inGroup(isFilled: Bool) throws -> VolatileNeighbour.Result {
        let group: LimitedGroup
        do {
            group = try GroupMaker().make("faults", limit: Self.limit)
        } catch {
            throw Failure.unavailable("\(error)\nWhat to do: \(GroupMaker.Refusal.remedy).")
        }
        defer { group.remove() }
        let child = try group.startPart(
            ["_volatile-faults", "--seconds", "\(length.inSeconds)"] + (isFilled ? ["--filled"] : []))
        defer { child.end(within: .zero) }
        let deadline = SteadyClock.now + length + .seconds(60)
        while child.poll() == nil, SteadyClock.now < deadline { SteadyClock.sleep(.milliseconds(50)) }
        guard child.ending == .exited(0), let line = child.output?.lines().last else {
            throw Failure.failed(
                "the process beside the cache ended with status \(child.end(within: .zero).status) and \(group.kills) OOM kills"
            )
        }
        return try JSONLine.decode(VolatileNeighbour.Result.self, from: line)
    }
}

/// Memory that is allocated and freed in the process of a managed cache without a limit. The cache is empty or has
/// filled the group.
final class VolatileNeighbour: Sendable {
    struct Result: Codable {
        var p99Microseconds: Double
        /// Resident memory of the whole process, at the end.
        var residentBytes: Int
    }

    private static let bytesPerSecond = 50e6
    private static let chunk = 1 << 20
    /// Chunks held at a time.
    private static let window = 16

    private let cache = VolatileCache<UInt64, [UInt8]>("neighbour")
    private let isFilled: Bool
    private let isOver = Atomic<Bool>(false)

    init(isFilled: Bool) { self.isFilled = isFilled }

    func run(for length: Duration) async throws -> Result {
        let manager = ResourceManager(source: LinuxPressureSource(), time: SteadyClock.timekeeper)
        manager.register(cache)
        async let _: Void = manager.run()
        return try await PlainThread.run { [self] in
            let filler = isFilled ? PlainThread { [self] in fill() } : nil
            // By then the cache has reached its allowed size: four gigabytes a second at most.
            SteadyClock.sleep(.seconds(3))
            let p99 = quantile(0.99, of: touch(for: length)) ?? .nan
            let resident = VolatileFootprint.resident
            isOver.store(true, ordering: .relaxed)
            filler?.join()
            return Result(p99Microseconds: p99, residentBytes: resident)
        }
    }

    /// Fills as fast as possible for two seconds, then at the rate of the other side.
    private func fill() {
        let value = [UInt8](repeating: 1, count: 4096)
        let start = SteadyClock.now
        var key: UInt64 = 0, due = start + .seconds(2)
        while !isOver.load(ordering: .relaxed) {
            for _ in 0..<Self.chunk / value.count {
                cache.insert(value, forKey: key)
                key += 1
            }
            guard SteadyClock.now > start + .seconds(2) else { continue }
            due = max(due + .seconds(Double(Self.chunk) / Self.bytesPerSecond), SteadyClock.now - .milliseconds(50))
            SteadyClock.sleep(until: due)
        }
    }

    /// Returns the times of first touches, in microseconds each.
    private func touch(for length: Duration) -> [Double] {
        let page = Int(sysconf(Int32(_SC_PAGESIZE)))
        let end = SteadyClock.now + length
        var times: [Double] = [], chunks: [UnsafeMutableRawPointer] = [], oldest = 0, due = SteadyClock.now
        times.reserveCapacity(Int(Self.bytesPerSecond * length.inSeconds) / page * 2)
        while SteadyClock.now < end {
            guard let chunk = mmap(nil, Self.chunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                chunk != MAP_FAILED
            else { break }
            // The kernel could merge neighbouring chunks into huge pages, which would leave no faults to time.
            madvise(chunk, Self.chunk, MADV_NOHUGEPAGE)
            for offset in stride(from: 0, to: Self.chunk, by: page) {
                let before = SteadyClock.now
                chunk.storeBytes(of: 1, toByteOffset: offset, as: UInt8.self)
                times.append((SteadyClock.now - before).milliseconds * 1000)
            }
            if chunks.count < Self.window {
                chunks.append(chunk)
            } else {
                munmap(chunks[oldest], Self.chunk)
                chunks[oldest] = chunk
                oldest = (oldest + 1) % Self.window
            }
            due = max(due + .seconds(Double(Self.chunk) / Self.bytesPerSecond), SteadyClock.now - .milliseconds(50))
            SteadyClock.sleep(until: due)
        }
        for chunk in chunks { munmap(chunk, Self.chunk) }
        return times
    }
}
