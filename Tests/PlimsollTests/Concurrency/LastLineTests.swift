import Glibc
import PlimsollTesting
import Testing

@testable import Plimsoll

/// The last line of a process that ends itself.
@Suite(.serialized, .timeLimit(.minutes(5))) struct LastLineTests {
    @Test func `a process ends itself although standard error is a full pipe that nobody reads`() async {
        await #expect(processExitsWith: .exitCode(75)) {
            var ends: [Int32] = [-1, -1]
            guard pipe(&ends) == 0, fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0 else { exit(2) }
            let bytes = [UInt8](repeating: 0, count: 4096)
            while write(ends[1], bytes, bytes.count) > 0 {}
            guard fcntl(ends[1], F_SETFL, 0) == 0, dup2(ends[1], STDERR_FILENO) >= 0 else { exit(3) }
            // A line that blocks ends the process by a signal, and not with the status.
            alarm(60)
            ResourceManager(source: ScriptedPressureSource(), time: .running).parts.exit(75, "the last line\n")
        }
    }

    @Test func `a process ends itself with the status although the reader of standard error is gone`() async {
        await #expect(processExitsWith: .exitCode(75)) {
            var ends: [Int32] = [-1, -1]
            guard pipe(&ends) == 0, dup2(ends[1], STDERR_FILENO) >= 0, close(ends[0]) == 0 else { exit(2) }
            ResourceManager(source: ScriptedPressureSource(), time: .running).parts.exit(75, "the last line\n")
        }
    }

    @Test func `a last line longer than a piece of a pipe arrives whole`() async throws {
        let result = await #expect(processExitsWith: .exitCode(75), observing: [\.standardErrorContent]) {
            let line = String(repeating: "~", count: 10_000) + "\n"
            ResourceManager(source: ScriptedPressureSource(), time: .running).parts.exit(75, line)
        }
        let text = try #require(result).standardErrorContent
        #expect(text.count { $0 == UInt8(ascii: "~") } == 10_000)
    }
}
