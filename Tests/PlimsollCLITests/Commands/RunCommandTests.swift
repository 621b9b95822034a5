import Foundation
import Plimsoll
import TestSupport
import Testing

@testable import PlimsollDemos

/// Commands in groups of their own, on a real kernel.
@Suite struct RunCommandTests {
    /// The program built beside this test.
    static let program = builtProgram("plimsoll")

    /// The reason why no command can run in a group here; `nil` if commands can.
    static let obstacle: String? = {
        guard access(program, X_OK) == 0 else { return "\(program) has not been built" }
        do {
            try GroupMaker().make("test-run", limit: .mebibytes(64)).remove()
            return nil
        } catch {
            return "\(error)"
        }
    }()

    private func run(_ arguments: [String]) throws -> (ending: ChildProcess.Ending, output: [String]) {
        let child = try ChildProcess(Self.program, ["plimsoll"] + arguments, readsOutput: true)
        let ending = child.waitForEnd()
        return (ending, child.output?.lines() ?? [])
    }

    private static let commands: [(command: [String], status: Int32)] = [
        (["true"], 0), (["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -TERM $$"], 143), (["plimsoll-no-such-command"], 127), (["/"], 126),
    ]

    @Test(.needs(obstacle == nil, "no group can be made here"), arguments: commands)
    func `run passes the command's status on`(command: [String], status: Int32) throws {
        #expect(try run(["run", "--memory-max", "64M", "--"] + command).ending == .exited(status))
    }

    @Test(.needs(obstacle == nil, "no group can be made here"))
    func `run notices the end of the command, although the parent of run ignores the ends of children`() async throws {
        let command = ["env", "--ignore-signal=CHLD", Self.program, "run", "--", "sh", "-c", "exit 7"]
        let child = try ChildProcess("/usr/bin/env", command, readsOutput: true, endsWithParent: true)
        await until("the end of run") { child.poll() != nil }
        #expect(child.ending == .exited(7))
    }

    @Test(.needs(obstacle == nil, "no group can be made here"))
    func `a command over the limit is killed, with status 137`() throws {
        #expect(try run(["run", "--memory-max", "16M", "--", "tail", "/dev/zero"]).ending == .exited(137))
    }

    @Test(.needs(obstacle == nil, "no group can be made here"))
    func `T40 C85 a process that opted in to end when saturated saves, names the purgeables, and ends with 75`() throws {
        // The memory left is within the critical margin, and enough for the process to react.
        let (ending, output) = try run(["run", "--memory-max", "128M", "--", builtProgram("plimsoll-bench"), "_saturate", "--leaving", "10M"])
        #expect(ending == .exited(75), "\(output)")
        #expect(output.contains("saved"), "\(output)")
    }

    @Test(.needs(obstacle == nil, "no group can be made here"))
    func `run removes the group at the end`() throws {
        let (ending, output) = try run(["run", "--memory-max", "64M", "--", "cat", "/proc/self/cgroup"])
        #expect(ending == .exited(0))
        let path = try #require(output.first { $0.contains("plimsoll-") }?.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false).last)
        for root in ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"] { #expect(access(root + path, F_OK) != 0) }
    }
}
