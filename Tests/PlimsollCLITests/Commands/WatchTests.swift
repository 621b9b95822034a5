import Plimsoll
import Testing

@testable import PlimsollCLI

@Suite struct WatchTests {
    @Test func `a frame keeps the same height with any content`() {
        var view = WatchView(), decisions = PressureDecisions()
        var heights: Set<Int> = []
        for second in 0..<20 {
            let step = decisions.decide(
                PressureReading(at: .seconds(second), boundary: .maximum, limit: .mebibytes(100), usage: .mebibytes(second * 5)))
            view.note(step)
            heights.insert(view.frame(step).count { $0 == "\n" })
        }
        #expect(heights.count == 1)
    }

    @Test func `the watch shows changes, and one line a second`() {
        var filter = ChangeFilter(), decisions = PressureDecisions()
        let usages = [10, 10, 10, 30, 30]
        let news = usages.enumerated().map { index, usage in
            filter.isNews(
                decisions.decide(
                    PressureReading(at: .milliseconds(index * 400), boundary: .maximum, limit: .mebibytes(1000), usage: .mebibytes(usage))))
        }
        #expect(news == [true, false, false, true, false])
    }
}
