import Foundation
import Glibc
import Plimsoll
import PlimsollTesting
import TestSupport
import Testing

@testable import PlimsollSupervisor

/// Reading the kernel's files, or a file in the supervisor's directory, never traps for any content, and the results
/// are in range.
@Suite struct ParserFuzzTests {
    /// Applies one to six changes: inserts bytes and too large numbers, and removes, doubles or cuts off parts.
    private static func mutated(_ text: String, with random: inout SeededGenerator) -> [UInt8] {
        var bytes = Array(text.utf8)
        for _ in 0..<Int.random(in: 1...6, using: &random) {
            let place = bytes.isEmpty ? 0 : Int.random(in: 0..<bytes.count, using: &random)
            switch Int.random(in: 0..<7, using: &random) {
            case 0: bytes.insert(UInt8.random(in: 0...255, using: &random), at: place)
            case 1 where !bytes.isEmpty: bytes.remove(at: place)
            case 2 where !bytes.isEmpty: bytes[place] = UInt8.random(in: 0...255, using: &random)
            case 3:
                let number = ["99999999999999999999", "9223372036854775807", "-1", "0", "18446744073709551615"].randomElement(using: &random) ?? ""
                bytes.insert(contentsOf: Array(number.utf8), at: place)
            case 4: bytes.removeSubrange(place...)
            case 5 where !bytes.isEmpty: bytes.append(contentsOf: bytes[place...])
            default: bytes.insert(contentsOf: [[0x20], [0x0A], [0x3A], [0x2D], [0x2F], [0]].randomElement(using: &random) ?? [], at: place)
            }
        }
        return bytes
    }

    private static let locks = """
        1: POSIX  ADVISORY  WRITE 4711 fd:00:123 0 EOF
        1: -> POSIX  ADVISORY  WRITE 4712 fd:00:123 0 EOF
        2: FLOCK  ADVISORY  WRITE 815 00:2d:99 0 EOF
        3: OFDLCK ADVISORY  READ -1 00:2d:98 128 256
        4: LEASE  ACTIVE    READ 42 08:01:1 0 EOF

        """

    private static let smaps = """
        00400000-004f2000 r-xp 00000000 fd:00 1837 /usr/bin/thing
        Size:                968 kB
        Rss:                 616 kB
        Pss:                 600 kB
        Anonymous:             0 kB
        Swap:                  0 kB
        VmFlags: rd ex mr mw me
        7f0000000000-7f0000021000 rw-p 00000000 00:00 0
        Rss:                   8 kB
        Anonymous:             8 kB
        7fff0000-7fff1000 r--p 00000000 fd:00 1838 /a b/c
        Rss:                   4 kB
        Anonymous:             0 kB

        """

    @Test func `T34 K37 K41 no text of locks or mappings traps, and parsed values are in range`() {
        let all = seeds(5000)
        var readable = 0
        for seed in all {
            var random = SeededGenerator(seed: seed)
            let bytes = Self.mutated(Self.locks, with: &random)
            for lock in LockTable(bytes).locks {
                readable += 1
                #expect(lock.pid > 0 || lock.pid == -1, "seed \(seed)")
                #expect(lock.file.split(separator: ":").count == 3, "seed \(seed)")
            }
            _ = LockTable.isLocked(bytes)
            for mapping in CleanPages.mappings(in: Self.mutated(Self.smaps, with: &random)) {
                readable += 1
                #expect(mapping.start < mapping.end && mapping.resident > .zero, "seed \(seed)")
            }
        }
        #expect(readable > all.count, "the property was exercised too seldom: \(readable)")
    }

    @Test func `K38 no text of a note traps, or makes a foreign directory a group`() throws {
        let all = seeds(2000)
        let directory = Fixture.Directory(), path = directory.path + "/web.process"
        defer { unlink(path) }
        // The directory exists, but belongs to no group: a note that names the directory must not make a group of that
        // directory.
        let text = """
            4711 815
            unified 1 2 /tmp
            memory 3 4 \(directory.path)
            cpu 5 6 /sys/fs/cgroup/no such group
            lift	cpu	5	6	cpu.max	10000	max	/tmp

            """
        var readable = 0
        for seed in all {
            var random = SeededGenerator(seed: seed)
            try Data(Self.mutated(text, with: &random)).write(to: URL(fileURLWithPath: path))
            let note = ProcessNote(directory.path, "web")
            if let (pid, started) = note.read() {
                readable += 1
                #expect(pid > 0 && started > 0, "seed \(seed)")
            }
            #expect(try note.groups.isEmpty && note.limits.isEmpty, "seed \(seed)")
        }
        #expect(readable > all.count / 4, "the property was exercised too seldom: \(readable)")
    }

    @Test func `K38 a note reads back the noted process and groups, and a cut note gives nothing wrong`() throws {
        let root = Workbench.root(), group = try root.make("web")
        defer { Workbench.clear(group) }
        let directory = Fixture.Directory(), path = directory.path + "/web.process"
        defer { unlink(path) }
        let note = ProcessNote(directory.path, "web")
        let child = try Child.adopt(getppid())
        #expect(note.write(child, group) == nil)
        let whole = try Data(contentsOf: URL(fileURLWithPath: path))
        #expect(try note.read().map { $0.pid } == getppid() && Set(note.groups.map(\.path)) == Set(group.directories.map(\.path)))
        // A note that is cut at any place names no other process and no other group.
        for length in 0..<whole.count {
            try whole.prefix(length).write(to: URL(fileURLWithPath: path))
            if let (pid, started) = note.read() { #expect(pid != getppid() || started <= child.started ?? 0, "cut after \(length)") }
            #expect(try Set(note.groups.map(\.path)).isSubset(of: group.directories.map(\.path)), "cut after \(length)")
        }
    }
}
