import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll

/// The room for more memory that a manager reports.
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

    @Test func `the limit of a request body is a share of the room, and falls as memory gets shorter`() async throws {
        let idle = ResourceManager(source: ScriptedPressureSource())
        #expect(idle.collectLimit() == 16 << 20, "no limit is known: the most")
        #expect(idle.collectLimit(least: .bytes(3), most: .bytes(3)) == 3)
        try await RunningManager.run { running in
            await running.available(.mebibytes(900))
            let room = try #require(running.manager.room)
            #expect(running.manager.collectLimit() == Int(Double(room) / 64))
            #expect(running.manager.collectLimit(share: 1) == 16 << 20 && running.manager.collectLimit(share: 0) == 64 << 10)
            await running.available(.mebibytes(1))
            #expect(running.manager.level == .critical && running.manager.collectLimit(share: 1) == 64 << 10)
        }
    }
}
