import Plimsoll
import PlimsollTesting
import Testing

@testable import PlimsollCLI

@Suite struct HistoryTests {
    @Test func `a drawn trace and the trace's history agree`() {
        let outcome = Simulation().run(PressureTrace("__--##__--__"))
        let drawing = History(outcome).drawing
        #expect(drawing.levels == outcome.levels)
        #expect(drawing.actions == outcome.actions)
    }

    @Test func `seconds without a reading show the level in force`() {
        let readings = [0, 5].map {
            PressureReading(at: .seconds($0), boundary: .maximum, limit: .mebibytes(100), usage: .mebibytes(85))
        }
        #expect(History(Simulation().run(readings)).drawing.levels == "------")
    }

    @Test func `several readings a second are one character, the worst`() {
        let usages = [10, 95, 95, 10]
        let readings = usages.enumerated().map { index, usage in
            PressureReading(at: .milliseconds(index * 100), boundary: .maximum, limit: .mebibytes(100), usage: .mebibytes(usage))
        }
        #expect(History(Simulation().run(readings)).drawing.levels == "#")
    }

    @Test func `a gap of a year does not draw a year`() {
        let readings = [0, 31_536_000].map { PressureReading(at: .seconds($0), usage: .zero) }
        #expect(History(Simulation().run(readings)).drawing.levels.count == History.mostColumns)
    }

    @Test func `a continued release is reported once`() {
        let history = History(Simulation().run(PressureTrace("__-------")))
        let releases = history.changes.count { $0.actions.contains(.release) }
        #expect(releases == 1)
        #expect(history.changes.first?.at == .seconds(2))
    }

    @Test func `no readings give an empty drawing`() {
        let history = History(Simulation().run([PressureReading]()))
        #expect(history.drawing.levels.isEmpty && history.changes.isEmpty)
    }
}
