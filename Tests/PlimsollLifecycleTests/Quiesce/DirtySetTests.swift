import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

@Suite(.serialized, .timeLimit(.minutes(5))) struct DirtySetTests {
    let set = QuiesceSet(time: ManualClock().timekeeper)

    @Test(arguments: [LifecycleState.background, .inactive, .suspended])
    func `C55 C57 keys marked while the process is away are rebuilt once on return`(state: LifecycleState) async {
        let rebuilt = Log<Set<Int>>()
        let views = DirtySet<Int>("views") { rebuilt.add($0) }
        set.add(views)
        set.setState(state)
        for mark in 0..<10_000 { views.mark(mark % 100) }
        #expect(views.rebuilds == 0 && views.marked.count == 100)
        for state in [LifecycleState.inactive, .active, .inactive, .active] { set.setState(state) }
        await until { !rebuilt.all.isEmpty }
        #expect(rebuilt.all == [Set(0..<100)] && views.rebuilds == 1 && views.marked.isEmpty)
    }

    @Test func `C57 at most one rebuild runs at a time, and one more for all keys marked meanwhile`() async {
        let rebuilt = Log<Set<String>>(), held = Latch()
        let views = DirtySet<String>("views") { elements in
            rebuilt.add(elements)
            await held.wait()
        }
        views.mark("a")
        await until { !rebuilt.all.isEmpty }
        for name in ["b", "c", "b"] { views.mark(name) }
        views.mark(contentsOf: ["c", "d"])
        // Tasks that begin later than another rebuild would have ended.
        for _ in 0..<20 { await Task {}.value }
        #expect(views.rebuilds == 1)
        held.open()
        await until { rebuilt.all.count >= 2 }
        #expect(rebuilt.all == [["a"], ["b", "c", "d"]])
        views.mark("e")
        await until { rebuilt.all.count >= 3 }
        #expect(rebuilt.all.last == ["e"] && views.rebuilds == 3)
    }

    @Test func `C55 a running rebuild is finished, and the next one waits for the return`() async {
        let rebuilt = Log<Set<Int>>(), held = Latch()
        let views = DirtySet<Int>("views") { elements in
            rebuilt.add(elements)
            await held.wait()
        }
        set.add(views)
        views.mark(1)
        await until { !rebuilt.all.isEmpty }
        set.setState(.background)
        views.mark(2)
        held.open()
        set.setPressure(.critical, isQuiescing: true)
        set.setState(.active)
        #expect(views.marked == [2], "memory is too short for it")
        set.setPressure(.normal, isQuiescing: false)
        await until { rebuilt.all.count >= 2 }
        #expect(rebuilt.all == [[1], [2]])
    }
}
