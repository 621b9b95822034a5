import Foundation
import Plimsoll
import PlimsollHeap
import TestSupport
import Testing

@testable import PlimsollDemos

/// Why no memory of another process can be read here; `nil` if it can.
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
        // A process that is just becoming another program has no memory to read.
        _ = output.fileHandleForReading.availableData
        _ = try HeapCensus.take(of: child.processIdentifier)
        return nil
    } catch {
        return "\(error)"
    }
}()

/// Censuses of other processes.
@Suite(.serialized, .timeLimit(.minutes(5)), .needs(obstacle == nil, "no memory of other processes can be read here"))
struct OtherHeapTests {
    /// A process with a known heap.
    final class HeldHeap {
        let child: ChildProcess
        let truth: [String: Int]

        init(_ options: [String]) async throws {
            let child = try ChildProcess(
                builtProgram("plimsoll-bench"), ["plimsoll-bench", "_held-heap"] + options, readsOutput: true, endsWithParent: true)
            let output = try #require(child.output)
            var lines: [String] = []
            // The second line is empty: the heap stays as it is from then on.
            var ending: ChildProcess.Ending?
            await until("the heap to be made") {
                ending = child.poll()
                lines += output.lines()
                return lines.count >= 2 || ending != nil
            }
            try #require(ending == nil && lines.count >= 2, "\(String(describing: ending)) after \(lines.count) lines")
            self.child = child
            truth = try JSONLine.decode([String: Int].self, from: lines[0])
        }
    }

    @Test func `the heap of another process is counted exactly, and the process goes on`() async throws {
        let process = try await HeldHeap(["--objects", "2000"])
        let census = try HeapCensus.take(of: process.child.pid)
        #expect(census.way == .chunks && census.lostBytes == 0 && census.coverage > 0.9)
        let found = Dictionary(census.rows.map { ($0.name, $0.count) }) { first, _ in first }
        #expect(process.truth.count == 20)
        for (name, count) in process.truth { #expect(found[name] == count, "\(name)") }
        #expect(process.child.end(within: .seconds(60)) == .exited(0))
    }

    @Test func `a broken heap of another process ends no census, and no process`() async throws {
        // The last one damaged the block of an array that was freed afterwards.
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

    @Test func `a process that is gone, or is none, is told`() throws {
        let child = try ChildProcess("/bin/true", ["true"])
        child.waitForEnd()
        #expect { try HeapCensus.take(of: child.pid) } throws: { "\($0)".contains("No such") }
        #expect { try HeapCensus.take(of: -1) } throws: { "\($0)".contains("a PID is greater than 0") }
    }
}
