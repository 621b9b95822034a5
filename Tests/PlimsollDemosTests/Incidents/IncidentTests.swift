import Testing

@testable import Plimsoll
@testable import PlimsollDemos

/// Situations in which controllers of memory pressure have failed elsewhere have the right outcome here.
@Suite struct IncidentTests {
    private func play(_ incident: Incident) -> IncidentRun {
        let run = incident.run(), judgement = incident.judge(run.outcome)
        #expect(judgement.isMet, "\(incident.rawValue): expected: \(judgement.expected)")
        return run
    }

    @Test func `K24 K21 page cache at the limit for ten minutes raises no level`() {
        let run = play(.pageCache)
        #expect(run.steps.count == 6000 && run.group.usage > run.group.limit * 4 / 5 && run.steps.allSatisfy(\.actions.isEmpty))
    }

    @Test func `K21 dentries by the million at the limit for ten minutes raise no level`() {
        let run = play(.dentries)
        #expect(run.steps.count == 6000 && run.group.slabFree > run.group.limit / 4 && run.steps.allSatisfy(\.actions.isEmpty))
    }

    @Test func `K21 dentries in use warn before the kernel kills`() {
        let run = play(.heldDentries)
        #expect(run.group.slabHeld >= 400 << 20 && !run.group.isKilled)
    }

    @Test func `T28 a critical level ends without outside help where only admitted requests free memory`() {
        let run = play(.sealed)
        #expect(run.steps.contains { $0.actions.contains(.quiesce) })
    }

    @Test func `T16 K18 caches settle by the lower limit of a parent that a neighbour shares, not by their own group's limit`() {
        let run = play(.lowerFloor)
        #expect(run.group.usage + run.group.neighbour < run.group.parentLimit && run.group.limit > 2 * run.group.parentLimit)
    }

    @Test func `K21 socket buffers count as taken, and admission narrows before they fill the group`() { _ = play(.sockets) }
}
