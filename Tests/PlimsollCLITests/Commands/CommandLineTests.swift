import ArgumentParser
import Plimsoll
import PlimsollService
import PlimsollTesting
import TestSupport
import Testing

@testable import PlimsollCLI
@testable import PlimsollDemos

/// Impossible options: exit status 64 and a sentence with the allowed values.
@Suite struct CommandLineTests {
    @Test(arguments: [
        (["demo", "--limit", "16M"], "allowed is 64 MiB to 1 GiB"),
        (["demo", "--limit", "lots"], "The value 'lots' is invalid"),
        (["demo", "--seconds", "1"], "allowed are seconds from 4 to 600"),
        (["demo", "--seconds", "nan"], "allowed are seconds from 4 to 600"),
        (["watch", "--for", "0"], "allowed are seconds from 0.1"),
        (["watch", "--for", "-3"], "--for"),
        (["record"], "Missing expected argument"),
        (["record", "file", "--for", "inf"], "allowed are seconds from 0.1"),
        (["replay"], "Missing expected argument"),
        (["simulate", "__x__"], "allowed are _ (normal), - (warning), # (critical)"),
        (["simulate", ""], "allowed is 1 to 100000"),
        (["run"], "plimsoll run [--memory-max 512M] -- COMMAND"),
        (["run", "--memory-max", "1K", "--", "true"], "allowed is 1 MiB to"),
        (["run", "--memory-max", "-5M", "--", "true"], "--memory-max"),
        (["stress", "--runs", "0"], "allowed is 1 to 1000"),
        (
            ["stress", "--scenario", "ramp-20,flood"],
            "names \"flood\"; allowed are ramp-20, ramp-200, ramp-max, ramp-max-2t, ramp-read, page-cache, ramp-huge, traffic, burst, burst-2, limit-halved, limit-cut"
        ),
        (["stress", "--scenario", ""], "names \"\"; allowed are ramp-20"),
        (["stress", "--protection", "prayer"], "allowed are none, reactive, volatile"),
        (["stress", "--parallel", "9"], "allowed is 1 to 4"),
        (["stress", "--limit", "4G"], "allowed is 64 MiB to 1 GiB"),
        (["sink"], "Unexpected argument 'sink'"),
        (["bench"], "Unexpected argument 'bench'"),
        (["autopsy", "a", "b"], "Unexpected argument 'b'"),
        (["doctor", "--loud"], "Unknown option '--loud'"),
    ])
    func `impossible options are refused with the allowed values`(arguments: [String], sentence: String) {
        do {
            _ = try PlimsollCommand.parseAsRoot(arguments)
            Issue.record("\(arguments) was accepted")
        } catch {
            #expect(PlimsollCommand.exitCode(for: error).rawValue == 64)
            let message = PlimsollCommand.message(for: error)
            #expect(message.contains(sentence), "\(message)")
        }
    }

    @Test func `the command says the version of the package, and metrics say the same`() throws {
        #expect(PlimsollCommand.configuration.version == Version.current)
        #expect(Version.current.wholeMatch(of: #/\d+\.\d+\.\d+/#) != nil)
        let metrics = PrometheusText.render(ResourceManager(source: ScriptedPressureSource()).status)
        #expect(metrics.contains("plimsoll_build_info{version=\"\(Version.current)\"} 1\n"))
    }

    @Test func `possible options are parsed as meant`() throws {
        let run = try #require(try PlimsollCommand.parseAsRoot(["run", "--memory-max", "512M", "--", "sleep", "--help"]) as? RunCommand)
        #expect(run.memoryMax == .mebibytes(512))
        #expect(run.command == ["sleep", "--help"])
        let stress = try #require(try PlimsollCommand.parseAsRoot(["stress", "--scenario", "traffic,ramp-20,traffic"]) as? StressCommand)
        #expect(stress.limit == .mebibytes(512))
        let chosen: [Scenario] = try Allowed.list("traffic,ramp-20,traffic", "--scenario")
        #expect(chosen == [.traffic, .slowRamp])
    }

    @Test(.needs(AdminCommandTests.isBuilt, "the program has not been built"), arguments: ["simulate __##", "watch --json"])
    func `a command whose output is lost because the disk is full fails, and says so`(command: String) throws {
        let script = "exec \"$0\" \(command) 2>&1 >/dev/full"
        let child = try ChildProcess("/bin/sh", ["sh", "-c", script, RunCommandTests.program], readsOutput: true)
        #expect(child.waitForEnd() == .exited(1))
        #expect(child.output?.lines() == ["plimsoll: cannot write all of the output: No space left on device"])
    }

    @Test func `unavailable exits with 69 and failed with 1`() {
        #expect(Failure.unavailable("").status.rawValue == 69)
        #expect(Failure.failed("").status.rawValue == 1)
    }
}
