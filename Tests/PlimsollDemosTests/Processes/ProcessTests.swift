import Foundation
import Plimsoll
import TestSupport
import Testing

@testable import PlimsollDemos

@Suite struct ProcessTests {
    @Test(arguments: [
        (Int32(0), ChildProcess.Ending.exited(0), Int32(0)), (7 << 8, .exited(7), 7), (9, .signalled(SIGKILL), 137),
        (0x80 | 11, .signalled(SIGSEGV), 139),
    ])
    func `a wait status gives the ending and the shell's status`(status: Int32, ending: ChildProcess.Ending, shell: Int32) {
        #expect(ChildProcess.Ending(waitStatus: status) == ending)
        #expect(ending.status == shell)
    }

    @Test(arguments: ["cat", "sleep"])
    func `a process that ends with this one is ended, and waited for, when the object is dropped`(program: String) throws {
        // cat ends with standard input; sleep does not.
        var child: ChildProcess? = try ChildProcess("/bin/\(program)", [program, "600"].dropLast(program == "cat" ? 1 : 0), endsWithParent: true)
        let pid = try #require(child?.pid)
        child = nil
        // An ended child keeps its number until a wait for that child, and a wait for any child finds the ended one
        // first.
        #expect(waitpid(pid, nil, WNOHANG) == -1 && errno == ECHILD)
    }

    @Test func `lines come whole from chunks of any size`() {
        var ends: [Int32] = [0, 0]
        // A socket, because a pipe is not created close-on-exec in one step. A process that another test starts must
        // not keep the writer's end.
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

    /// The program that offers the demos.
    static let program = builtProgram("plimsoll")

    /// The reason why no command can run in a group here; `nil` if commands can.
    static let obstacle: String? = {
        guard access(program, X_OK) == 0 else { return "\(program) has not been built" }
        do {
            try GroupMaker().make("test", limit: .mebibytes(64)).remove()
            return nil
        } catch {
            return "\(error)"
        }
    }()
}
