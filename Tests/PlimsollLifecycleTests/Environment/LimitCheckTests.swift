import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// The limit that the pressure loop reads, and requests for another reading.
@Suite struct LimitCheckTests {
    @Test func `C60 a request is answered by the second reading after it, and by the end of the loop`() {
        let wakes = Counter(), parker = Parker(), check = LimitCheck { wakes.add(1) }
        #expect(check.ask(parker) == nil && check.isAnswered(nil), "the loop does not run")
        check.noticed(.mebibytes(1)) { _ in }
        let asked = check.ask(parker)
        #expect(asked == 3 && wakes.value == 1)
        #expect(!check.isAnswered(asked) && wakes.value == 2)
        // This reading may have begun before the request.
        check.noticed(.mebibytes(1)) { _ in }
        #expect(!check.isAnswered(asked) && wakes.value == 3 && parker.park(atMost: .zero))
        check.noticed(.mebibytes(1)) { _ in }
        #expect(check.isAnswered(asked) && wakes.value == 3)
        let another = check.ask(parker)
        #expect(another == 5 && !check.isAnswered(another))
        check.ended()
        #expect(check.isAnswered(another) && check.ask(parker) == nil)
        check.stopAsking()
        #expect(check.isAnswered(.max))
    }

    @Test func `C58 another limit is a change, and the first limit is none`() {
        let check = LimitCheck {}, changes = Log<EnvironmentChange>()
        for limit in [nil, nil, .mebibytes(1), .mebibytes(1), .mebibytes(2)] as [ByteCount?] {
            check.noticed(limit) { changes.add($0) }
        }
        #expect(changes.all.map(\.from) == [.absent, .size(.mebibytes(1))])
        #expect(changes.all.map(\.to) == [.size(.mebibytes(1)), .size(.mebibytes(2))])
    }
}
