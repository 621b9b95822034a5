import ArgumentParser
import Foundation
import Plimsoll
import PlimsollHeap
import TestSupport
import Testing

@testable import PlimsollCLI
@testable import PlimsollDemos

/// `plimsoll heap` on programs that do not use the library.
@Suite struct HeapCommandTests {
    private static let program = builtProgram("plimsoll")

    /// The reason why no command can be watched here; `nil` if commands can.
    private static let obstacle: String? = {
        do { return try run(["true"]).errors.contains("% of") ? nil : "ptrace is forbidden" } catch { return "\(error)" }
    }()

    private static func run(_ command: [String], _ options: [String] = []) throws -> (status: Int32, output: String, errors: String) {
        let process = Process(), output = Pipe(), errors = Pipe()
        process.executableURL = URL(fileURLWithPath: program)
        process.arguments = ["heap", "--rows", "3"] + options + ["--"] + command
        (process.standardOutput, process.standardError) = (output, errors)
        try process.run()
        // Both are less than a pipe holds.
        let texts = [output, errors].map { String(decoding: $0.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self) }
        process.waitUntilExit()
        return (process.terminationStatus, texts[0], texts[1])
    }

    /// The command that stops is continued again and again: on a busy machine the first signal may come before the stop.
    private static let commands: [(command: [String], status: Int32)] = [
        (["true"], 0), (["sh", "-c", "echo said; exit 7"], 7), (["sh", "-c", "kill -TERM $$"], 143),
        (["sh", "-c", "(while sleep 0.2; do kill -CONT $$; done) & kill -STOP $$; kill $!; wait; exit 3"], 3), (["plimsoll-no-such-command"], 127),
    ]

    @Test(.needs(obstacle == nil, "no command can be traced here"), arguments: commands)
    func `a command runs as without a census, and the heap is counted before the end`(command: [String], status: Int32) throws {
        let (ending, output, errors) = try Self.run(command)
        #expect(ending == status)
        #expect(output == (command.last?.contains("said") == true ? "said\n" : ""))
        #expect(errors.contains("% of ") && errors.contains(" are named or owned: "), "\(errors)")
    }

    @Test(.needs(obstacle == nil, "no command can be traced here"))
    func `with --json the census is the last line of standard error`() throws {
        let (_, _, errors) = try Self.run(["sh", "-c", "echo warning >&2"], ["--json"])
        let lines = errors.split(separator: "\n")
        #expect(lines.count == 2 && lines.first == "warning")
        let census = try JSONLine.decode(HeapCensus.self, from: try #require(lines.last))
        #expect(census.way == .chunks && census.usedBytes > 0 && census.rows.count <= 3)
    }

    private static let terminal = "/usr/bin/script"

    @Test(
        .needs(obstacle == nil, "no command can be traced here"),
        .needs(access(terminal, X_OK) == 0, "script is not installed (Debian: bsdutils)"))
    func `Ctrl-C reaches a command once`() async throws {
        let path = NSTemporaryDirectory() + "ctrl-c-\(UUID().uuidString)"
        defer { try? FileManager.default.removeItem(atPath: path) }
        // The first SIGINT has SIGTERM passed on, which comes behind a SIGINT that is passed on.
        let script = #"""
            n=0; sleep 600 &
            trap 'n=$((n+1)); kill -TERM $PPID' INT
            trap 'kill $!; echo got $n; exit 3' TERM
            echo ready
            while :; do wait; done
            """#
        try File.write(script, to: path)
        let command = ["script", "-qec", "exec \(Self.program) heap -- sh \(path)", "/dev/null"]
        let child = try ChildProcess(Self.terminal, command, readsOutput: true, endsWithParent: true)
        var text = ""
        await until("the start of the command") {
            text += child.output?.lines().joined() ?? ""
            return text.contains("ready")
        }
        child.send("\u{3}")
        await until("the end of the command") {
            text += child.output?.lines().joined() ?? ""
            return child.poll() != nil
        }
        text += child.output?.lines().joined() ?? ""
        #expect(text.contains("got 1") && child.ending == .exited(3), "\(text)")
    }

    @Test func `a census is due each time a process has grown by a quarter`() {
        var trigger = GrowthTrigger()
        #expect([100, 100, 125, 126, 126, 90, 157, 158].map { trigger.isDue($0) } == [true, false, false, true, false, false, false, true])
        trigger = GrowthTrigger()
        #expect((1...1_000_000).count { trigger.isDue($0) } < 70)
    }

    @Test(arguments: [
        (["heap", "--pid", "0"], "a PID is at least 1"), (["heap", "--rows", "0"], "allowed is 1 to 1000"),
        (["heap", "--pid", "7", "--socket", "/run/s"], "Only one of"), (["heap", "--pid", "7", "--", "true"], "Only one of"),
    ])
    func `impossible options are refused`(arguments: [String], sentence: String) {
        #expect { try PlimsollCommand.parseAsRoot(arguments) } throws: { PlimsollCommand.message(for: $0).contains(sentence) }
    }
}
