import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// Registrations cancelled on several threads at once.
@Suite(.serialized, .timeLimit(.minutes(5))) struct CancelRaceTests {
    @Test func `T1 two callbacks that cancel each other's registration do not deadlock`() async {
        for _ in 0..<50 {
            let gates = (0..<2).map { _ in CallGate() }
            let registrations = gates.map { Registration($0) {} }
            let inside = Counter(), left = Counter()
            for index in 0..<2 {
                let isStarted = Thread.start("test") {
                    _ = gates[index].call {
                        inside.add(1)
                        blockUntil("both are inside") { inside.value == 2 }
                        registrations[1 - index].cancel()
                    }
                    left.add(1)
                }
                #expect(isStarted)
            }
            guard await until("both have returned", { left.value == 2 }) else { return }
        }
    }

    @Test func `T1 a ring of three callbacks that cancel each other's registration ends, of threads and of tasks`() async {
        let first = CallGate(), second = AsyncCallGate(), third = AsyncCallGate()
        let threads = HandlerThreads(), inside = Counter(), left = Counter()
        @Sendable func meet() {
            inside.add(1)
            blockUntil("all three are inside") { inside.value == 3 }
        }
        threads.run { () -> Void in
            _ = first.call {
                meet()
                second.close()
            }
            left.add(1)
        }
        threads.run { () async -> Void in
            await second.call {
                meet()
                third.close()
            }
            left.add(1)
        }
        threads.run { () async -> Void in
            await third.call {
                meet()
                first.close()
            }
            left.add(1)
        }
        await until("all three have returned") { left.value == 3 }
    }

    @Test func `T1 a callback that cancels another waits for the running call`() async {
        let gate = CallGate(), other = CallGate(), order = Log<String>(), blockade = Blockade(), left = Counter()
        let begun = Thread.start("test") {
            _ = other.call {
                blockade.wait()
                order.add("the other's call ends")
            }
        }
        #expect(begun)
        await until("the other's call is under way") { blockade.count == 1 }
        let cancels = Thread.start("test") {
            _ = gate.call {
                other.close()
                order.add("it is cancelled")
            }
            left.add(1)
        }
        #expect(cancels)
        await until("the cancel is under way") { gate.isBusy }
        blockade.open()
        await until("it is done") { left.value == 1 }
        #expect(order.all == ["the other's call ends", "it is cancelled"])
    }

    @Test func `T1 a registration cancelled on many threads at once ends one watch, the watch of that registration`() async {
        let at = Surroundings(), kind = EnvironmentChange.Kind.file("/etc/shop.conf")
        let seen = Counter()
        for round in 1...100 {
            let kept = at.lifecycle.watch(file: "/etc/shop.conf"), gone = at.lifecycle.watch(file: "/etc/shop.conf")
            let cancelled = Counter()
            for _ in 0..<4 {
                let started = Thread.start("test") {
                    gone.cancel()
                    cancelled.add(1)
                }
                #expect(started)
            }
            await until("all have cancelled it") { cancelled.value == 4 }
            #expect(at.environment.watch.count(of: kind) == 1, "round \(round)")
            kept.cancel()
            #expect(at.environment.watch.count(of: kind) == 0)
            seen.add(1)
        }
    }
}
