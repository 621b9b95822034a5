import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollTesting

/// A neighbour that keeps the group at its limit with page cache: a harmless load that needs no purge.
struct Churn {
    private static let block = 1 << 20
    /// A bounded load on the disk. The page cache of the group turns over every second or two.
    private static let bytesPerSecond = 200e6
    /// Interval and length of bursts of random page accesses, which stall on reading the pages back.
    private static let stallEvery = Duration.seconds(15), stallFor = Duration.milliseconds(400)

    /// Makes a file whose pages are charged to no group yet: they are charged to the group that reads them first.
    /// Pages written by the neighbour itself would be dirty at first, and dirty memory really is unavailable.
    static func makeFile(_ size: ByteCount, in directory: String) throws -> String {
        let path = directory + "/plimsoll-churn-\(getpid())"
        let file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        guard file >= 0 else {
            throw Failure.failed("cannot use \(printable(path)): \(String(cString: strerror(errno)))")
        }
        defer { close(file) }
        let block = [UInt8](repeating: 3, count: Self.block)
        for _ in 0..<size.bytes / Self.block where write(file, block, block.count) != block.count {
            let reason = errno
            unlink(path)
            throw Failure.failed("cannot use \(printable(path)): \(String(cString: strerror(reason)))")
        }
        fdatasync(file)
        posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED)
        return path
    }

    /// Reads the file over and over.
    func run(_ path: String, for length: Duration) throws {
        let file = open(path, O_RDONLY | O_CLOEXEC)
        guard file >= 0 else {
            throw Failure.failed("cannot use \(printable(path)): \(String(cString: strerror(errno)))")
        }
        defer { close(file) }
        var block = [UInt8](repeating: 0, count: Self.block)
        let blocks = Int(lseek(file, 0, SEEK_END)) / Self.block
        guard blocks > 0 else { throw Failure.failed("\(printable(path)) is too small to churn") }
        let end = SteadyClock.now + length
        var index = 0, due = SteadyClock.now, nextStall = SteadyClock.now + Self.stallEvery
        while SteadyClock.now < end {
            _ = pread(file, &block, block.count, (index % blocks) * Self.block)
            index += 1
            due = max(due + .seconds(Double(Self.block) / Self.bytesPerSecond), SteadyClock.now - .milliseconds(50))
            SteadyClock.sleep(until: due)
            if SteadyClock.now >= nextStall {
                stall(file, blocks * Self.block)
                nextStall = SteadyClock.now + Self.stallEvery
            }
        }
    }

    /// Touches pages of the file in random order. Each was dropped long ago and has to come back from the disk.
    private func stall(_ file: Int32, _ length: Int) {
        guard let pages = mmap(nil, length, PROT_READ, MAP_SHARED, file, 0), pages != MAP_FAILED else { return }
        defer { munmap(pages, length) }
        madvise(pages, length, MADV_RANDOM)
        var random = SeededGenerator(seed: 1), sum: UInt8 = 0
        let end = SteadyClock.now + Self.stallFor
        while SteadyClock.now < end {
            sum &+= pages.load(fromByteOffset: Int.random(in: 0..<length, using: &random), as: UInt8.self)
        }
        withExtendedLifetime(sum) {}
    }
}
