import Glibc
import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

@Suite(.serialized, .timeLimit(.minutes(5))) struct SecretTests {
    /// Computes one byte of a test pattern. The bytes are stored nowhere.
    static func byte(_ index: Int, _ seed: Int) -> UInt8 { UInt8(truncatingIfNeeded: (index &* 2_654_435_761 &+ seed &* 40_503) >> 7) }

    static func fill(_ bytes: inout MutableRawSpan, _ seed: Int) {
        for index in 0..<bytes.byteCount { bytes.storeBytes(of: byte(index, seed), toByteOffset: index, as: UInt8.self) }
    }

    static func secret(_ byteCount: Int = 64, _ seed: Int = 1, tags: [String] = [], keepsInBackground: Bool = false) throws -> Secret {
        try Secret("key", byteCount: byteCount, tags: tags, keepsInBackground: keepsInBackground) { fill(&$0, seed) }
    }

    static func isIntact(_ secret: Secret, _ seed: Int = 1) -> Bool {
        secret.withBytes { bytes in
            (0..<bytes.byteCount).allSatisfy { bytes.unsafeLoad(fromByteOffset: $0, as: UInt8.self) == byte($0, seed) }
        } ?? false
    }

    static func isZero(_ secret: Secret) -> Bool {
        UnsafeRawBufferPointer(start: secret.address, count: secret.byteCount).allSatisfy { $0 == 0 }
    }

    @Test(arguments: [0, 1, 63, 64, 65, 4096, 4097, 100_000]) func `a secret's contents are readable until wiped, and readable again after a refill`(
        byteCount: Int
    )
        throws
    {
        let secret = try Self.secret(byteCount)
        #expect(Self.isIntact(secret) && !secret.isWiped)
        #expect(secret.wipe() && secret.wipe())
        #expect(secret.isWiped && secret.withBytes { $0.byteCount } == nil && Self.isZero(secret))
        try secret.refill { Self.fill(&$0, 2) }
        #expect(Self.isIntact(secret, 2))
    }

    @Test(.needsLinux)
    func `C44 the kernel keeps a secret's pages out of dumps and children, and the neighbouring pages are unreadable`() throws {
        for secret in [try Self.secret(32), try Self.secret(50_000)] {
            let maps = Mapping.all()
            let place = try #require(maps.firstIndex { $0.range.contains(UInt(bitPattern: secret.address)) })
            #expect(maps[place].flags.isSuperset(of: ["dd", "wf"]))
            #expect(secret.protection.isSuperset(of: [.leftOutOfDumps, .zeroInChildren]))
            #expect(maps[place].flags.contains("lo") == secret.protection.contains(.locked))
            for neighbour in [maps[place - 1], maps[place + 1]] {
                #expect(neighbour.range.upperBound == maps[place].range.lowerBound || neighbour.range.lowerBound == maps[place].range.upperBound)
                #expect(!neighbour.isReadable)
            }
        }
    }

    @Test func `T37 a wipe during a read takes effect when the last reader leaves, and lets no other reader in`() throws {
        let secret = try Self.secret()
        let inside: Void? = secret.withBytes { _ in
            secret.withBytes { _ in #expect(!secret.wipe()) }
            #expect(secret.isWiped && secret.withBytes { _ in } == nil)
            #expect(!Self.isZero(secret))
            #expect(throws: LifecycleError.self) { try secret.refill { _ in } }
        }
        #expect(inside != nil && Self.isZero(secret))
        try secret.refill { Self.fill(&$0, 3) }
        #expect(Self.isIntact(secret, 3))
    }

    @Test func `a closure that throws leaves no secret, and a secret wiped during a refill gives an error`() throws {
        struct Failure: Error {}
        #expect(throws: Failure.self) {
            try Secret(byteCount: 64) { bytes in
                Self.fill(&bytes, 1)
                throw Failure()
            }
        }
        let secret = try Self.secret()
        #expect(throws: Failure.self) {
            try secret.refill { bytes in
                Self.fill(&bytes, 1)
                throw Failure()
            }
        }
        #expect(secret.isWiped && Self.isZero(secret))
        #expect(throws: LifecycleError.self) {
            try secret.refill { bytes in
                Self.fill(&bytes, 1)
                #expect(!secret.wipe())
            }
        }
        #expect(secret.isWiped && Self.isZero(secret))
    }

    @Test func `secrets are compared by their bytes`() throws {
        let secret = try Self.secret(), same = try Self.secret(), other = try Self.secret(64, 2), shorter = try Self.secret(63)
        #expect(secret.isEqual(to: same) && secret.isEqual(to: secret))
        #expect(!secret.isEqual(to: other) && !secret.isEqual(to: shorter))
        let bytes = (0..<64).map { Self.byte($0, 1) }
        #expect(bytes.withUnsafeBytes { secret.isEqual(to: $0.bytes) })
        same.wipe()
        #expect(!secret.isEqual(to: same) && !same.isEqual(to: secret))
    }

    @Test func `a secret's description shows no contents`() throws {
        let secret = try Self.secret(2)
        #expect("\(secret)" == "secret key, 2 bytes" && String(reflecting: secret) == "secret key, 2 bytes")
        #expect(Mirror(reflecting: secret).children.isEmpty)
        secret.wipe()
        #expect("\(secret)" == "secret key, 2 bytes, wiped")
    }

    @Test func `secrets that come and go never overlap, and begin as zeros`() throws {
        let run = seeds(1, from: .random(in: 0...1_000_000)).lowerBound
        print("PLIMSOLL_SEED=\(run)")
        var random = SeededGenerator(seed: run)
        var live: [(secret: Secret, seed: Int)] = []
        for seed in 0..<3000 {
            if live.count > 200 || !live.isEmpty && Bool.random(using: &random) {
                let gone = live.remove(at: .random(in: live.indices, using: &random))
                #expect(Self.isIntact(gone.secret, gone.seed))
            }
            let byteCount = 1 << Int.random(in: 0...13, using: &random) + Int.random(in: 0...8, using: &random)
            let secret = try Secret(byteCount: byteCount) { bytes in
                let isZero = (0..<bytes.byteCount).allSatisfy { bytes.unsafeLoad(fromByteOffset: $0, as: UInt8.self) == 0 }
                #expect(isZero)
                Self.fill(&bytes, seed)
            }
            live.append((secret, seed))
        }
        #expect(live.allSatisfy { Self.isIntact($0.secret, $0.seed) })
    }
}

/// Effects of secrets on a whole process. Each test runs in a process of its own.
@Suite(.serialized, .timeLimit(.minutes(5)), .needsLinux) struct SecretProcessTests {
    @Test func `C44 a forked child reads zeros, and the child's secret counts as wiped`() async {
        await #expect(processExitsWith: .success) {
            guard let small = try? SecretTests.secret(64), let large = try? SecretTests.secret(10_000) else { exit(2) }
            typealias Fork = @convention(c) () -> pid_t
            guard let fork = dlsym(nil, "fork").map({ unsafeBitCast($0, to: Fork.self) }) else { exit(3) }
            let child = fork()
            if child == 0 {
                // Swift's runtime may hang in a child that was forked while another thread was inside the runtime. The
                // alarm makes that a failure, not an endless wait.
                alarm(60)
                for secret in [small, large] {
                    guard secret.isWiped, SecretTests.isZero(secret), secret.withBytes({ _ in }) == nil, secret.wipe() else { _exit(10) }
                    guard (try? secret.refill { _ in }) == nil else { _exit(11) }
                }
                guard let own = try? SecretTests.secret(64, 5), SecretTests.isIntact(own, 5) else { _exit(12) }
                _exit(0)
            }
            var status: Int32 = 0
            guard waitpid(child, &status, 0) == child, status == 0 else { exit(4) }
            exit(SecretTests.isIntact(small) && SecretTests.isIntact(large) ? 0 : 5)
        }
    }

    @Test func `C44 C45 T37 after a scrub no readable byte of the process holds any secret`() async {
        await #expect(processExitsWith: .success) {
            let lifecycle = ResourceManager(source: ScriptedSource()).lifecycle
            let secrets = (0..<64).compactMap { seed in try? SecretTests.secret(48, seed) }
            for secret in secrets { lifecycle.keep(secret) }
            guard secrets.count == 64, Residue.count({ SecretTests.byte($0, 7) }, 48) == 1 else { exit(2) }
            guard lifecycle.prepareForSnapshot().isClean else { exit(3) }
            for seed in [7, 33, 63] where Residue.count({ SecretTests.byte($0, seed) }, 24) != 0 { exit(4) }
            exit(0)
        }
    }

    @Test func `T37 a consumed array is erased; a shared one cannot be, and is reported`() async {
        await #expect(processExitsWith: .success) {
            func count(_ seed: Int) -> Int { Residue.count({ SecretTests.byte($0, seed) }, 4096) }
            var own = (0..<4096).map { SecretTests.byte($0, 1) }
            guard let secret = try? Secret(consuming: &own), own.isEmpty, !secret.hasStrayCopy, SecretTests.isIntact(secret) else { exit(2) }
            guard count(1) == 1 else { exit(3) }

            var shared = (0..<4096).map { SecretTests.byte($0, 2) }
            let other = shared
            guard let stray = try? Secret(consuming: &shared), shared.isEmpty, stray.hasStrayCopy, SecretTests.isIntact(stray, 2) else { exit(4) }
            guard count(2) == 2, other[5] == SecretTests.byte(5, 2) else { exit(5) }
            exit(0)
        }
    }

    @Test func `thousands of small secrets share pages, which are freed with the secrets`() async {
        await #expect(processExitsWith: .success) {
            let arena = SecretArena.shared, before = arena.slabBytes
            var secrets = (0..<5000).compactMap { seed in try? SecretTests.secret(32, seed) }
            guard secrets.count == 5000, arena.slabBytes - before <= 5000 * 64 + 65536 else { exit(2) }
            for (seed, secret) in secrets.enumerated() where !SecretTests.isIntact(secret, seed) { exit(3) }
            secrets = []
            exit(arena.slabBytes - before <= 65536 ? 0 : 4)
        }
    }

    @Test func `C44 a process forbids core dumps, and reports that`() async {
        await #expect(processExitsWith: .success) {
            let manager = ResourceManager(source: ScriptedSource())
            _ = Lifecycle(manager)
            guard Secret.isProcessDumpable, manager.capabilities["secrets"]?.isLive == true else { exit(2) }
            guard Secret.setProcessDumpable(false), !Secret.isProcessDumpable else { exit(3) }
            exit(manager.capabilities["secrets"]?.detail.contains("writes no core dump") == true ? 0 : 4)
        }
    }

    /// A source without readings.
    final class ScriptedSource: PressureSource {
        var capabilities: Capabilities { Capabilities(support: .inert, signals: []) }
        func read(at: Duration) throws(PressureSourceError) -> PressureReading { PressureReading(at: at) }
        func wait(atMost limit: Duration) {}
        func wake() {}
        func footprint() -> Footprint { Footprint() }
        var rings: Bool { true }
    }
}

/// A mapping of this process, as described in `/proc/self/smaps`.
struct Mapping {
    var range: Range<UInt>
    var isReadable: Bool
    var flags: Set<Substring>

    static func all() -> [Mapping] {
        var all: [Mapping] = []
        guard let file = fopen("/proc/self/smaps", "r") else { return [] }
        defer { fclose(file) }
        var line: UnsafeMutablePointer<CChar>?, size = 0
        defer { free(line) }
        while getline(&line, &size, file) > 0, let line {
            let text = String(cString: line)
            let words = text.split(whereSeparator: \.isWhitespace)
            guard let first = words.first else { continue }
            let ends = first.split(separator: "-").compactMap { UInt($0, radix: 16) }
            if ends.count == 2, words.count > 1 {
                all.append(Mapping(range: ends[0]..<ends[1], isReadable: words[1].hasPrefix("r"), flags: []))
            } else if first == "VmFlags:" {
                all[all.count - 1].flags = Set(words.dropFirst())
            }
        }
        return all
    }
}

/// The contents of a core dump that leaves nothing out.
enum Residue {
    /// Returns the number of places in this process's readable memory with the first `count` bytes of `byte`. The
    /// memory of the search is left out.
    static func count(_ byte: (Int) -> UInt8, _ count: Int) -> Int {
        let memory = open("/proc/self/mem", O_RDONLY)
        precondition(memory >= 0, "/proc/self/mem cannot be opened: errno \(errno)")
        defer { close(memory) }
        // The pattern lies behind the read window, so that both are left out.
        let size = 1 << 20, whole = size + count
        guard let window = mmap(nil, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), window != MAP_FAILED else { return -1 }
        defer { munmap(window, whole) }
        for index in 0..<count { (window + size).storeBytes(of: byte(index), toByteOffset: index, as: UInt8.self) }
        let own =
            UInt(bitPattern: window)..<UInt(bitPattern: window) + UInt((whole + Int(getpagesize()) - 1) / Int(getpagesize()) * Int(getpagesize()))
        let first = Int32(byte(0))
        precondition(first != 0, "zeros are everywhere")
        var found = 0
        for mapping in Mapping.all() where mapping.isReadable {
            var address = mapping.range.lowerBound
            while address < mapping.range.upperBound {
                // A neighbour may be in one mapping with the window.
                if own.contains(address) {
                    address = own.upperBound
                    continue
                }
                let end = min(mapping.range.upperBound, address < own.lowerBound ? max(own.lowerBound, address) : .max)
                let read = pread(memory, window, min(size, Int(end - address)), off_t(address))
                if read <= 0 { break }
                var position = 0
                while position + count <= read, let hit = memchr(window + position, first, read - position - count + 1) {
                    if memcmp(hit, window + size, count) == 0 { found += 1 }
                    position = hit - window + 1
                }
                address += UInt(read >= count && address + UInt(read) < end ? read - count + 1 : read)
            }
        }
        return found
    }
}
