import PlimsollTesting
import Synchronization
import Testing

@testable import Plimsoll

@Suite(.timeLimit(.minutes(5))) struct ScriptedPressureSourceTests {
    @Test func `a turn sees all of what changes while it waits, time and reading`() async throws {
        let turns = Mutex<[(at: Duration, usage: ByteCount)]>([])
        try await RunningManager.run { reading, _ in
            turns.withLock { $0.append((reading.at, reading.usage)) }
        } _: { running in
            // Ten minutes of manual time, in which a loop that did not wait would turn.
            for minutes in 1...20 {
                await running.source.whileSettled {
                    running.clock.advance(by: .seconds(600))
                    running.source.push(usage: .mebibytes(minutes), limit: .gibibytes(1))
                }
            }
            await running.source.settled()
        }
        let seen = turns.withLock { $0 }
        #expect(seen.allSatisfy { $0.at == .seconds($0.usage.bytes >> 20) * 600 }, "\(seen)")
        #expect(Set(seen.map(\.usage)).count == 21, "each of them once at least, and nothing before the first")
    }
}
