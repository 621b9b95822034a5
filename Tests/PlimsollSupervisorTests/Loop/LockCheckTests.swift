import Testing

@testable import PlimsollSupervisor

struct LockCheckTests {
    @Test func `C48 a lock held while a unit saved does not delay the freeze`() {
        var check = LockCheck()
        check.begin()
        check.record(true, at: .milliseconds(10))
        #expect(!check.isDue(at: .milliseconds(500)))
        check.becameReady(at: .milliseconds(32))
        // The check is due at once, not a second after the former check.
        #expect(check.areHeld == nil && check.isDue(at: .milliseconds(32)))
        check.record(false, at: .milliseconds(33))
        #expect(check.areHeld == false && !check.isDue(at: .seconds(60)))
    }

    @Test func `C48 an answer from before a unit was ready does not count for present locks`() {
        var check = LockCheck()
        check.begin()
        check.startCheck(at: .milliseconds(10))
        check.becameReady(at: .milliseconds(32))
        check.answer(true, asked: .milliseconds(10), counts: true)
        #expect(check.areHeld == nil)
        check.startCheck(at: .seconds(2))
        check.answer(true, asked: .seconds(2), counts: true)
        #expect(check.areHeld == true && !check.isDue(at: .milliseconds(2999)) && check.isDue(at: .seconds(3)))
    }

    @Test func `C48 a lasting lock is checked each second, and a new departure discards the old answer`() {
        var check = LockCheck()
        check.begin()
        check.becameReady(at: .zero)
        check.record(true, at: .zero)
        // Repeated reports of readiness cause no further checks.
        check.becameReady(at: .milliseconds(500))
        #expect(check.areHeld == true && !check.isDue(at: .milliseconds(999)) && check.isDue(at: .seconds(1)))
        check.startCheck(at: .seconds(1))
        #expect(!check.isDue(at: .seconds(5)))
        check.begin()
        check.answer(false, asked: .seconds(1), counts: false)
        #expect(check.areHeld == nil && check.isDue(at: .seconds(5)))
    }

    @Test func `C48 the time of the next check is known while locks are held, and only then`() {
        var check = LockCheck()
        check.begin()
        #expect(check.nextDue == nil)
        check.startCheck(at: .seconds(1))
        #expect(check.nextDue == nil)
        check.answer(true, asked: .seconds(1), counts: true)
        #expect(check.nextDue == .seconds(2))
        check.startCheck(at: .seconds(2))
        check.answer(false, asked: .seconds(2), counts: true)
        #expect(check.nextDue == nil)
    }
}
