import Plimsoll
import PlimsollTesting
import TestSupport
import Testing

@testable import PlimsollSupervisor

struct FleetWatchTests {
    @Test(.timeLimit(.minutes(5)))
    func `T20 a shortage ends for the supervisor with the first reading below the threshold`() async {
        let source = ScriptedPressureSource(), clock = ManualClock(), fleetWatch = FleetWatch()
        source.push(usage: .mebibytes(250), limit: .mebibytes(256))
        fleetWatch.start(source, thresholds: .standard, time: clock.timekeeper, onChange: {}, onEnd: { Issue.record("\($0)") })
        await until("the shortage") { fleetWatch.current.level == .critical }
        // The clock stands still, so the level is held.
        source.push(usage: .mebibytes(60), limit: .mebibytes(256))
        await source.waitUntilIdle()
        #expect(fleetWatch.current.level == .normal && fleetWatch.current.shortfall == .zero)
        fleetWatch.stop()
    }
}
