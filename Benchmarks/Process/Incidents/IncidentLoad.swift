import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollLinux
import PlimsollService
import Synchronization

/// The load of an incident on the real kernel, run inside the limited group. Equal to the load of `IncidentRun`, in
/// proportion to the limit.
final class IncidentLoad {
    private let incident: Incident
    private let limit: Int
    private let directory: String
    private let level: () -> PressureLevel
    private let cache: PurgeableCache<Int, [UInt8]>
    private let shedder: RequestShedder
    private var kept: [TouchedMemory] = []
    private var sessions: [TouchedMemory] = []
    private let readers: SlowReaders
    private var file: Int32 = -1
    private var offset = 0
    /// Number of file names looked up or made.
    private(set) var names = 0
    private var keys = 0

    /// Time between two steps.
    static let stride = Duration.milliseconds(100)
    /// The length of the incident, in steps.
    static let ticks = 450
    /// Length of a name. The kernel keeps a copy of so long a name beside the dentry (`DNAME_INLINE_LEN` in
    /// include/linux/dcache.h): 200 bytes take 256.
    private static let nameLength = 200
    /// Bytes of a dentry, 192, and of its name.
    private static let dentrySize = 448

    /// Creates the load.
    ///
    /// - Parameters:
    ///   - limit: effective limit in bytes.
    ///   - directory: place for files: on a disk for `page-cache` and `dentries`, on a tmpfs for `held-dentries`.
    init(
        _ incident: Incident, limit: Int, directory: String, level: @escaping () -> PressureLevel,
        cache: PurgeableCache<Int, [UInt8]>,
        shedder: RequestShedder
    ) throws {
        (self.incident, self.limit, self.directory, self.level, self.cache, self.shedder) = (
            incident, limit, directory, level, cache, shedder
        )
        readers = try SlowReaders(size: limit / 1024)
    }

    private static func group() throws -> LimitedGroup {
        let own = ControlGroup(HostKernel())
        guard let memory = own.memory.path else { throw Failure.unavailable("the process is in no group") }
        return LimitedGroup(version: own.version, memory: memory, stall: own.unified.path)
    }

    /// Plays the whole incident. Call this on a separate thread.
    func run() throws {
        // The process's own memory is part of the service's.
        let base = try Self.group().pinned.bytes
        try keep(max(0, limit * shareBefore / 1000 - base))
        for tick in 1...Self.ticks {
            let due = SteadyClock.now + Self.stride
            try step(tick)
            SteadyClock.sleep(until: due)
        }
    }

    /// The service's own memory, in thousandths of the limit.
    private var shareBefore: Int {
        switch incident {
        case .pageCache, .dentries, .heldDentries: 490
        case .sealed: 645
        case .lowerFloor: 195
        case .sockets: 290
        }
    }

    private func keep(_ size: Int) throws { if size > 0 { kept.append(try TouchedMemory(size)) } }

    private func step(_ tick: Int) throws {
        switch incident {
        case .pageCache: try readOn(limit / 48)
        case .dentries: lookUp(until: SteadyClock.now + Self.stride * 0.6)
        case .heldDentries:
            if tick <= 200 { try link(limit * 41 / 100 / Self.dentrySize / 200) }
            // Once names are held, the service reads its files and grows with the admitted requests: no growth from a
            // warning on.
            if tick > 200, level() == .normal { try keep(limit / 1000) }
        case .sealed:
            // Eighteen sessions begin for fourteen that end, until the service is full; from then on eight for
            // twenty-four. Each is a request.
            for arrival in 0..<32 {
                let begins = arrival < (tick < 150 ? 18 : 8)
                guard shedder.begin(.normal) == nil else { continue }
                shedder.end()
                if begins { sessions.append(try TouchedMemory(limit / 2048)) } else { sessions.popLast()?.giveBack() }
            }
        case .lowerFloor:
            var left = limit / 192
            while left > 0, cache.insert([UInt8](repeating: 1, count: Self.valueSize), forKey: keys) {
                (left, keys) = (left - Self.valueSize, keys + 1)
            }
        case .sockets:
            // Of twelve answers six have been read after a while, and later more than there are.
            for _ in 0..<12 where shedder.begin(.normal) == nil {
                shedder.end()
                try readers.answerOne()
            }
            for _ in 0..<(tick < 150 ? 6 : 16) { readers.receiveOne() }
        }
    }

    /// One page below the allocator's next size.
    private static let valueSize = (64 << 10) - 64

    // MARK: Page cache and dentries

    /// Reads on in a file of four times the limit. Starts again at the end of the file.
    private func readOn(_ count: Int) throws {
        if file < 0 {
            let path = directory + "/read-\(getpid())"
            file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
            guard file >= 0, ftruncate(file, 4 * limit) == 0 else {
                throw Failure.failed("cannot use \(path): \(String(cString: strerror(errno)))")
            }
            // Unlinked from here on: no file is left behind, however this process ends.
            unlink(path)
        }
        var buffer = [UInt8](repeating: 0, count: 1 << 20)
        for _ in 0..<max(1, count >> 20) {
            guard pread(file, &buffer, buffer.count, offset) >= 0 else {
                throw Failure.failed("cannot read a file")
            }
            offset = (offset + buffer.count) % (4 * limit)
        }
    }

    private func name() -> String {
        names += 1
        let number = "\(names)"
        return directory + "/" + String(repeating: "n", count: Self.nameLength - number.count) + number
    }

    /// Looks up files that do not exist: the kernel keeps a dentry of each.
    private func lookUp(until deadline: Duration) {
        while SteadyClock.now < deadline { for _ in 0..<64 { _ = access(name(), F_OK) } }
    }

    /// Gives one file many names on a file system that consists of dentries only. A dentry is in use as long as its
    /// name exists.
    private func link(_ count: Int) throws {
        let target = directory + "/target"
        if names == 0 {
            let file = open(target, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
            guard file >= 0 else { throw Failure.failed("cannot use \(target): \(String(cString: strerror(errno)))") }
            close(file)
        }
        for _ in 0..<count {
            let name = name()
            guard Glibc.link(target, name) == 0 else {
                throw Failure.failed("cannot use \(name): \(String(cString: strerror(errno)))")
            }
        }
    }
}
