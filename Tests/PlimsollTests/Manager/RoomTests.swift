import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll

/// What a manager says may still be taken.
@Suite(.timeLimit(.minutes(5))) struct RoomTests {
    @Test func `room follows the readings, and is unknown without a limit or a running manager`() async throws {
        let idle = ResourceManager(source: ScriptedPressureSource())
        #expect(idle.room == nil)
        let escaped = Log<ResourceManager>()
        try await RunningManager.run { running in
            escaped.add(running.manager)
            #expect(running.manager.room == nil, "no limit is known")
            await running.available(.mebibytes(900))
            let plenty = try #require(running.manager.room)
            #expect(plenty > 500 << 20 && plenty < 900 << 20, "up to the line, not to the limit")
            await running.available(.mebibytes(500))
            #expect(running.manager.room == plenty - 400 << 20)
            await running.available(.mebibytes(1))
            #expect(running.manager.room == .zero)
        }
        #expect(escaped.all.first?.room == nil)
    }
}
