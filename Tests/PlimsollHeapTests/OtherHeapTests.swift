import Foundation
import Plimsoll
import PlimsollHeap
import PlimsollTesting
import TestSupport
import Testing

@testable import PlimsollDemos

/// The reason why no memory of another process can be read here; `nil` if memory can be read.
private let obstacle: String? = {
    do {
        let child = Process(), input = Pipe(), output = Pipe()
        child.executableURL = URL(fileURLWithPath: "/bin/sh")
        child.arguments = ["-c", "echo ready; read end"]
        (child.standardInput, child.standardOutput) = (input, output)
        try child.run()
        defer {
            try? input.fileHandleForWriting.close()
            child.waitUntilExit()
        }
        // A process in the middle of an exec has no memory to read.
        _ = output.fileHandleForReading.availableData
        _ = try HeapCensus.take(of: child.processIdentifier)
        return nil
    } catch {
        return "\(error)"
    }
}()

/// The path of jemalloc on Debian.
private let jemalloc: String? = ["x86_64", "aarch64"].map { "/usr/lib/\($0)-linux-gnu/libjemalloc.so.2" }
    .first { access($0, R_OK) == 0 }

/// Censuses of other processes.
@Suite(.serialized, .timeLimit(.minutes(5)), .needs(obstacle == nil, "no memory of other processes can be read here"))
struct OtherHeapTests {
    /// A process with a known heap.
    final class HeldHeap {
        let child: ChildProcess
        let truth: [String: Int]
        /// The lines after the truth.
        let lines: [String]

        init(_ options: [String], malloc: String? = nil, settings: [String] = []) async throws {
            let program = builtProgram("plimsoll-bench")
            let preload = malloc.map { "LD_PRELOAD=\($0)" }
            let child = try ChildProcess(
                "/usr/bin/env", ["env"] + (preload.map { [$0] } ?? []) + settings + [program, "_held-heap"] + options,
                readsOutput: true, endsWithParent: true)
            let output = try #require(child.output)
            var lines: [String] = []
            // The last line is empty: from then on the heap does not change.
            var ending: ChildProcess.Ending?
            await until("the heap to be made") {
                ending = child.poll()
                lines += output.lines()
                return lines.last == "" || ending != nil
            }
            try #require(ending == nil && lines.count >= 2, "\(String(describing: ending)) after \(lines.count) lines")
            self.child = child
            truth = try JSONLine.decode([String: Int].self, from: lines[0])
            self.lines = Array(lines.dropFirst())
        }

        /// Expects the true number of objects of each kind.
        func check(_ census: HeapCensus, _ way: HeapCensus.Way, sourceLocation: SourceLocation = #_sourceLocation) {
            #expect(census.way == way && census.lostBytes == 0 && census.coverage > 0.9, sourceLocation: sourceLocation)
            let found = Dictionary(census.rows.map { ($0.name, $0.count) }) { first, _ in first }
            #expect(truth.count == 20, sourceLocation: sourceLocation)
            for (name, count) in truth { #expect(found[name] == count, "\(name)", sourceLocation: sourceLocation) }
        }
    }

    @Test func `the heap of another process is counted exactly, and the process goes on`() async throws {
        let process = try await HeldHeap(["--objects", "2000"])
        process.check(try HeapCensus.take(of: process.child.pid), .chunks)
        #expect(process.child.end(within: .seconds(60)) == .exited(0))
    }

    @Test(.needs(jemalloc != nil, "libjemalloc2 is not installed"))
    func `a heap of jemalloc is counted exactly, by its process and from outside`() async throws {
        let process = try await HeldHeap(["--objects", "10000", "--own"], malloc: jemalloc)
        process.check(try HeapCensus.take(of: process.child.pid), .pages)
        try #require(process.lines.count == 3)
        let own = try JSONLine.decode(HeapCensus.self, from: process.lines[0])
        process.check(own, .pages)
        #expect(own.ownedBytes > 0 && own.freeBytes > 0)
        // An array of 100,000 bytes is in a block of 112 KiB, the next larger one.
        #expect(process.lines[1] == "\(112 << 10)")
        #expect(process.child.end(within: .seconds(60)) == .exited(0))
    }

    @Test(.needs(jemalloc != nil, "libjemalloc2 is not installed"))
    func `a heap of jemalloc is found in a process with many large mappings of others`() async throws {
        let process = try await HeldHeap(["--objects", "10000", "--stacks", "100"], malloc: jemalloc)
        process.check(try HeapCensus.take(of: process.child.pid), .pages)
        #expect(process.child.end(within: .seconds(60)) == .exited(0))
    }

    @Test(.needs(jemalloc != nil, "libjemalloc2 is not installed"))
    func `a process finds jemalloc's tree although the blocks to look for are in new mappings`() async throws {
        // A large block is then a mapping of its own.
        let settings = "MALLOC_CONF=retain:false,dirty_decay_ms:0,muzzy_decay_ms:0"
        let process = try await HeldHeap(["--objects", "2000", "--own"], malloc: jemalloc, settings: [settings])
        let own = try JSONLine.decode(HeapCensus.self, from: process.lines[0])
        #expect(own.way == .pages)
        #expect(process.child.end(within: .seconds(60)) == .exited(0))
    }

    /// Overwrites up to two of each page's 512 words in all private memory, including the metadata of malloc.
    private func scatter(over process: Int32, seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        let memory = open("/proc/\(process)/mem", O_RDWR | O_CLOEXEC)
        try #require(memory >= 0)
        defer { close(memory) }
        let maps = try String(contentsOfFile: "/proc/\(process)/maps", encoding: .utf8)
        var words: [UInt64] = [0, 1 << 40, .max]
        for line in maps.split(separator: "\n") where line.contains(" rw-p ") && line.contains(" 00:00 0") && !line.contains("[stack") {
            let ends = line.prefix { $0 != " " }.split(separator: "-").compactMap { UInt64($0, radix: 16) }
            guard ends.count == 2, ends[1] - ends[0] <= 64 << 20 else { continue }
            for place in stride(from: ends[0], to: ends[1], by: 4096) {
                for _ in 0..<2 {
                    let at = off_t(place + random.next() % 512 * 8)
                    var word: UInt64 = 0
                    guard pread(memory, &word, 8, at) == 8, word != 0 else { continue }
                    if words.count < 1000 { words.append(word) } else { words[Int(random.next() % 1000)] = word }
                    word = words[Int.random(in: words.indices, using: &random)] ^ (random.next() % 4 == 0 ? 1 << (random.next() % 64) : 0)
                    pwrite(memory, &word, 8, at)
                }
            }
        }
    }

    @Test(.needs(jemalloc != nil, "libjemalloc2 is not installed"), arguments: [false, true])
    func `random words all over a process make no census crash`(isJemalloc: Bool) async throws {
        for seed in seeds(0..<12) {
            let process = try await HeldHeap(["--objects", "2000"], malloc: isJemalloc ? jemalloc : nil)
            // The process waits, and cannot go on afterwards.
            for round in 0..<3 {
                try scatter(over: process.child.pid, seed: seed &* 8 &+ UInt64(round))
                let census = try HeapCensus.take(of: process.child.pid)
                #expect(census.rows.allSatisfy { $0.count > 0 && $0.bytes >= 0 && $0.ownedBytes >= 0 })
                #expect(census.usedBytes >= 0)
            }
            kill(process.child.pid, SIGKILL)
            #expect(process.child.waitForEnd() == .signalled(SIGKILL))
        }
    }

    @Test func `a broken heap of another process crashes neither the census nor the process`() async throws {
        // The last seed damaged the block of an array that was freed afterwards.
        for seed in seeds(0..<12) + (hasChosenSeed ? [] : [590_880_396]) {
            let process = try await HeldHeap(["--objects", "200", "--corrupt", "\(seed)"])
            for _ in 0..<3 {
                let census = try HeapCensus.take(of: process.child.pid)
                #expect(census.rows.allSatisfy { $0.count > 0 && $0.bytes >= 0 && $0.ownedBytes >= 0 })
                #expect(census.usedBytes > 0 && census.lostBytes < 1 << 30)
            }
            #expect(process.child.end(within: .seconds(60)) == .exited(0))
        }
    }

    @Test func `a missing process and an invalid PID are refused with the reason`() throws {
        let child = try ChildProcess("/bin/true", ["true"])
        child.waitForEnd()
        #expect { try HeapCensus.take(of: child.pid) } throws: { "\($0)".contains("No such") }
        #expect { try HeapCensus.take(of: -1) } throws: { "\($0)".contains("a PID is greater than 0") }
    }
}
