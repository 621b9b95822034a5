import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

@Suite(.timeLimit(.minutes(5))) struct ScriptedPressureSourceTests {
    @Test func `a turn sees all changes made during the wait, time and reading`() async throws {
        let turns = Mutex<[(at: Duration, usage: ByteCount)]>([])
        try await RunningManager.run { reading, _ in
            turns.withLock { $0.append((reading.at, reading.usage)) }
        } _: { running in
            // A loop that is woken while time advances must be held, otherwise the loop would turn at once with the old
            // reading.
            for round in 1...20 {
                await running.turn(after: .seconds(1)) {
                    running.source.wake()
                    running.clock.advance(by: .seconds(599))
                    running.source.push(usage: .mebibytes(round), limit: .gibibytes(1))
                }
            }
        }
        let seen = turns.withLock { $0 }
        #expect(seen.allSatisfy { $0.at == .seconds($0.usage.bytes >> 20) * 600 }, "\(seen)")
        #expect(Set(seen.map(\.usage)).count == 21, "each of them, and the empty one before the first")
    }
}
