import Glibc
import Plimsoll
import TestSupport
import Testing

@testable import PlimsollSupervisor

@Suite struct OrphanCleanupTests {
    @Test func `processes that a test has started end with a killed test, in a group and without a group`() async throws {
        let directory = Fixture.Directory(), path = directory.path + "/started"
        defer { unlink(path) }
        await #expect(processExitsWith: .signal(SIGKILL)) { [path = path as String] in
            let script = "echo $$ >> \(path); echo ready; exec sleep 1000"
            let group = try Workbench.root().make("left")
            let (grouped, first) = try Workbench.shell(script, in: group)
            let (loose, second) = try Workbench.shell(script, in: nil)
            precondition(first.line() == "ready" && second.line() == "ready")
            kill(getpid(), SIGKILL)
            withExtendedLifetime((grouped, loose)) {}
        }
        let text = (try? GroupText.read(path).get()).map { String(decoding: $0, as: UTF8.self) } ?? ""
        let pids = text.split(separator: "\n").compactMap { Int32($0) }
        #expect(pids.count == 2)
        await until("they have ended") { !pids.contains(where: RunningFleet.isRunning) }
    }
}
