import Plimsoll
import PlimsollService
import PlimsollTesting
import Testing

@testable import PlimsollCLI

/// What `plimsoll status` and its like say of a manager.
@Suite struct AdminTextTests {
    private let manager = ResourceManager(source: ScriptedPressureSource())

    @Test func `what was shed is told by priority, and a limit only where there is one`() throws {
        let shedder = RequestShedder("http", policy: SheddingPolicy(limit: 1))
        manager.lifecycle.quiesce.add(shedder)
        manager.lifecycle.quiesce.add(RequestShedder("open"))
        #expect(shedder.begin(.normal) == nil)
        for priority in [RequestPriority.sheddable, .normal, .sheddable] { #expect(shedder.begin(priority) != nil) }
        let lines = AdminText.status(manager.status).split(separator: "\n")
        #expect(lines.contains("admission  http: 1 of 1 run, 0 wait, 3 refused (2 sheddable, 1 normal)"))
        #expect(lines.contains("admission  open: 0 run, 0 wait, 0 refused"))
    }

    @Test func `a holder that does not answer is named`() {
        manager.register("sqlite\u{1B}", byteCount: { 4096 }, release: { _ in 0 })
        var status = manager.status
        status.holders[0].unansweredSeconds = 12.34
        #expect(AdminText.status(status).contains("caches     1 hold 4 KiB; sqlite\u{FFFD} has not answered for 12.3 s"))
        #expect(AdminText.caches(status.holders).contains("sqlite\u{FFFD}, no answer for 12.3 s"))
    }
}
