import Testing

@testable import PlimsollSupervisor

struct LockCheckTests {
    @Test func `C48 a lock held while a unit saved does not delay the freeze`() {
        var sight = LockCheck()
        sight.begin()
        sight.saw(true, at: .milliseconds(10))
        #expect(!sight.isDue(at: .milliseconds(500)))
        sight.becameReady(at: .milliseconds(32))
        // Looked for at once, not a second after the look before.
        #expect(sight.areHeld == nil && sight.isDue(at: .milliseconds(32)))
        sight.saw(false, at: .milliseconds(33))
        #expect(sight.areHeld == false && !sight.isDue(at: .seconds(60)))
    }

    @Test func `C48 an answer from before a unit was ready says nothing of present locks`() {
        var sight = LockCheck()
        sight.begin()
        sight.startCheck(at: .milliseconds(10))
        sight.becameReady(at: .milliseconds(32))
        sight.answer(true, asked: .milliseconds(10), counts: true)
        #expect(sight.areHeld == nil)
        sight.startCheck(at: .seconds(2))
        sight.answer(true, asked: .seconds(2), counts: true)
        #expect(sight.areHeld == true && !sight.isDue(at: .milliseconds(2999)) && sight.isDue(at: .seconds(3)))
    }

    @Test func `C48 a lasting lock is checked each second, and a new departure discards the old answer`() {
        var sight = LockCheck()
        sight.begin()
        sight.becameReady(at: .zero)
        sight.saw(true, at: .zero)
        // A unit that says again and again that it is ready has no further looks made.
        sight.becameReady(at: .milliseconds(500))
        #expect(sight.areHeld == true && !sight.isDue(at: .milliseconds(999)) && sight.isDue(at: .seconds(1)))
        sight.startCheck(at: .seconds(1))
        #expect(!sight.isDue(at: .seconds(5)))
        sight.begin()
        sight.answer(false, asked: .seconds(1), counts: false)
        #expect(sight.areHeld == nil && sight.isDue(at: .seconds(5)))
    }
}
