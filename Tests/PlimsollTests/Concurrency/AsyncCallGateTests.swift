import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// The gate for asynchronous calls, and closers that wait.
@Suite(.timeLimit(.minutes(5))) struct AsyncCallGateTests {
    @Test func `a closed gate lets no call through, and a call knows that it is inside`() async {
        let gate = AsyncCallGate(), calls = Counter()
        #expect(!AsyncCallGate.isInside)
        await gate.call {
            calls.add(1)
            #expect(AsyncCallGate.isInside && AsyncCallGate.around == [ObjectIdentifier(gate)])
            await AsyncCallGate.outside { #expect(!AsyncCallGate.isInside) }
        }
        gate.close()
        await gate.call { calls.add(1) }
        gate.close()
        #expect(calls.value == 1)
    }

    @Test func `a closer waits for the calls inside, and a call that closes its own gate does not`() async {
        for _ in 0..<4 {
            let gate = AsyncCallGate(), order = Log<String>(), blockade = Blockade()
            let call = Task { @concurrent in
                await gate.call {
                    order.add("inside")
                    await withCheckedContinuation { goesOn in
                        _ = Thread.start("blockade") {
                            blockade.wait()
                            goesOn.resume()
                        }
                    }
                    order.add("call over")
                    gate.close()
                    order.add("closed inside")
                }
            }
            await until { order.all == ["inside"] }
            let closed = Counter()
            _ = Thread.start("closer") {
                gate.close()
                order.add("closed")
                closed.add(1)
            }
            await until { CloseWaits.gates.contains(ObjectIdentifier(gate)) || closed.value > 0 }
            blockade.open()
            await call.value
            await until { closed.value == 1 }
            #expect(order.all == ["inside", "call over", "closed inside", "closed"])
            #expect(!CloseWaits.gates.contains(ObjectIdentifier(gate)))
        }
    }

    @Test func `a closer waits for the thread inside, and two that close each other's gates do not both wait`() async {
        for _ in 0..<4 {
            let (first, second) = (CallGate(), CallGate()), order = Log<String>(), inside = Counter()
            let threads = [(first, second), (second, first)].map { own, other in
                Task { @concurrent in
                    await onThread {
                        let entered = own.call {
                            inside.add(1)
                            blockUntil("both inside") { inside.value == 2 }
                            other.close()
                            order.add("over")
                        }
                        return entered
                    }
                }
            }
            for thread in threads { #expect(await thread.value) }
            #expect(order.all == ["over", "over"] && !first.isBusy && !first.call {} && !second.call {})
            #expect(!CloseWaits.gates.contains(ObjectIdentifier(first)) && !CloseWaits.gates.contains(ObjectIdentifier(second)))
        }
    }

    @Test func `a closed gate of threads has no call inside, once its closer is back`() async {
        let gate = CallGate(), blockade = Blockade(), order = Log<String>()
        let call = Task { @concurrent in
            await onThread {
                gate.call(at: .seconds(3)) {
                    order.add("inside")
                    blockade.wait()
                    order.add("over")
                }
            }
        }
        await until { blockade.count == 1 }
        #expect(gate.isBusy && gate.timeInside(at: .seconds(5)) == .seconds(2) && !gate.call {})
        let closer = Task { @concurrent in
            await onThread {
                gate.close()
                order.add("closed")
            }
        }
        await until { CloseWaits.gates.contains(ObjectIdentifier(gate)) || order.all.contains("closed") }
        blockade.open()
        #expect(await call.value)
        await closer.value
        #expect(order.all == ["inside", "over", "closed"] && gate.timeInside(at: .seconds(9)) == .zero)
    }
}
