import ArgumentParser
import Testing

@testable import plimsoll_bench

/// Impossible options: exit status 64 and a sentence with the allowed values.
@Suite struct BenchCommandLineTests {
    @Test(arguments: [
        (["idle", "--seconds", "0"], "allowed are seconds from 1 to 3600"),
        (["buffer", "--size", "1K"], "allowed is 1 MiB to 1 GiB"),
        (["torture", "--reads", "0"], "--reads is 0; allowed is 1 to"),
        (["torture", "--limit", "1M"], "allowed is 64 MiB to 1 GiB"),
        (["giveback", "--size", "1M"], "allowed is 2 MiB to 3 GiB"),
        (["sink"], "Unexpected argument 'sink'"),
    ])
    func `impossible options are refused with the allowed values`(arguments: [String], sentence: String) {
        do {
            _ = try BenchCommand.parseAsRoot(arguments)
            Issue.record("\(arguments) was accepted")
        } catch {
            #expect(BenchCommand.exitCode(for: error).rawValue == 64)
            let message = BenchCommand.message(for: error)
            #expect(message.contains(sentence), "\(message)")
        }
    }

    @Test(arguments: [
        ["supervise", "units.yaml"], ["_enter", "--path", "/bin/true", "--", "true"],
        ["_unit", "--name", "hog", "--directory", "/tmp", "--size", "8M"],
    ])
    func `processes that benchmarks start from their own program are offered`(arguments: [String]) throws {
        _ = try BenchCommand.parseAsRoot(arguments)
    }
}
