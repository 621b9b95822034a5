import Foundation
import Plimsoll
import TestSupport
import Testing

@testable import PlimsollCLI

@Suite struct ProcessTests {
    @Test(arguments: [
        (Int32(0), ChildProcess.Ending.exited(0), Int32(0)), (7 << 8, .exited(7), 7), (9, .signalled(SIGKILL), 137),
        (0x80 | 11, .signalled(SIGSEGV), 139),
    ])
    func `a wait status gives the ending and the shell's status`(status: Int32, ending: ChildProcess.Ending, shell: Int32) {
        #expect(ChildProcess.Ending(waitStatus: status) == ending)
        #expect(ending.status == shell)
    }

    @Test func `lines come whole from pieces of any size`() {
        var ends: [Int32] = [0, 0]
        // A socket, as a pipe is not made closed on exec in one step: a process that another test starts must not keep the writer's end.
        #expect(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0, &ends) == 0)
        let reader = LineReader(owning: ends[0])
        #expect(reader.lines().isEmpty)
        Output.write("one\ntw", to: ends[1])
        #expect(reader.lines() == ["one"])
        Output.write("o\n\nrest", to: ends[1])
        #expect(reader.lines() == ["two", ""])
        close(ends[1])
        var rest: [String] = []
        while !reader.isAtEnd { rest += reader.lines() }
        #expect(rest == ["rest"])
    }

    @Test func `a written file is whole, with the directories on the way`() throws {
        let directory = NSTemporaryDirectory() + "plimsoll-test-\(UUID().uuidString)"
        defer { try? FileManager.default.removeItem(atPath: directory) }
        try File.write("text", to: directory + "/a/b.svg")
        #expect(ControlFile.text(directory + "/a/b.svg") == "text")
        #expect(throws: Failure.self) { try File.write("text", to: directory + "/a/b.svg/c") }
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory + "/a") == ["b.svg"])
    }

    // MARK: In a real group

    /// The program that was built beside this test.
    static let program = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent().path + "/plimsoll"

    /// Why no command can be run in a group here; `nil` if one can.
    static let obstacle: String? = {
        guard access(program, X_OK) == 0 else { return "\(program) has not been built" }
        do {
            try GroupMaker().make("test", limit: .mebibytes(64)).remove()
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
    func `a command over the limit is killed, with status 137`() throws {
        #expect(try run(["run", "--memory-max", "16M", "--", "tail", "/dev/zero"]).ending == .exited(137))
    }

    @Test(.needs(obstacle == nil, "no group can be made here"))
    func `T40 C85 a process that opted in to leave when saturated saves, names the holders, and ends with 75`() throws {
        // What is left is within the critical margin, and enough for what the process does about it.
        let (ending, output) = try run(["run", "--memory-max", "128M", "--", Self.program, "_saturate", "--leaving", "10M"])
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
