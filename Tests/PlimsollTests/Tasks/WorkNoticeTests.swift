import TestSupport
import Testing

@testable import Plimsoll

/// The notice that a supervisor's link gets of background work.
@Suite struct WorkNoticeTests {
    @Test func `work is told to the latest link while armed, and to no link that is gone`() {
        let notice = WorkNotice(), told = Log<String>()
        let first = notice.connect { told.add("first") }
        notice.workBegins()
        #expect(told.all.isEmpty, "not armed")
        notice.arm(true)
        notice.workBegins()
        let second = notice.connect { told.add("second") }
        notice.workBegins()
        first.cancel()
        notice.workBegins()
        #expect(told.all == ["first", "second", "second"], "an earlier link leaves the latest one in place")
        second.cancel()
        notice.workBegins()
        #expect(told.all.count == 3)
        notice.arm(false)
        let third = notice.connect { told.add("third") }
        notice.workBegins()
        #expect(told.all.count == 3)
        third.cancel()
    }

    @Test func `the thousandth task is told as directly as the first`() {
        let notice = WorkNotice(), depths = Log<UInt>()
        let link = notice.connect { depths.add(stackAddress()) }
        notice.arm(true)
        for _ in 0..<1000 { notice.workBegins() }
        #expect(depths.all.count == 1000 && Set(depths.all).count == 1, "\(Set(depths.all).count) depths")
        link.cancel()
    }
}
