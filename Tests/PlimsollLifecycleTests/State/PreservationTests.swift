import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

@Suite(.serialized, .timeLimit(.minutes(5))) struct PreservationTests {
    struct Broken: Error {}

    let store: MemoryStateStore
    let clock = ManualClock()
    let lifecycle: Lifecycle
    private var preservation: Preservation { lifecycle.preservation }

    init() { self.init(store: MemoryStateStore()) }

    /// The state of an application, guarded by the application's own lock.
    final class Cart: Sendable {
        let items = Mutex<[UInt8]>([])
        let snapshots = Counter()
        let restores = Counter()
        let resets = Counter()
        var all: [UInt8] { items.withLock { $0 } }
        func set(_ new: [UInt8]) { items.withLock { $0 = new } }
        func snapshot() -> [UInt8] {
            snapshots.add(1)
            return all
        }
        func restore(_ bytes: [UInt8]) {
            restores.add(1)
            set(bytes)
        }
        func add(_ delta: [UInt8]) { items.withLock { $0 += delta } }
        func reset() {
            resets.add(1)
            set([])
        }
    }

    /// The next run of the process on the same store.
    private func next() -> PreservationTests { PreservationTests(store: store) }
    private init(store: MemoryStateStore) {
        self.store = store
        lifecycle = ResourceManager(source: ScriptedPressureSource(), time: clock.timekeeper).lifecycle
    }

    private func preserve(_ cart: Cart, as name: String = "cart") -> Preserved {
        lifecycle.preserve(name, in: store, snapshot: { cart.snapshot() }, restore: { cart.restore($0) })
    }

    private func preserveChanges(_ cart: Cart) -> Preserved {
        lifecycle.preserve(
            "cart", in: store, snapshot: { cart.snapshot() }, restore: { cart.restore($0) }, apply: { cart.add($0) }, reset: { cart.reset() })
    }

    /// Saves as the life cycle does, and expects no failure.
    private func checkpoint() { #expect(preservation.checkpoint(within: .seconds(60)).isEmpty) }

    // MARK: - Restoring

    @Test func `C42 the next run has the saved state`() {
        let cart = Cart()
        cart.set([1, 2, 3])
        let handle = preserve(cart)
        #expect(handle.name == "cart" && preservation.restore()["cart"] == RestoreOutcome.Result.none && cart.restores.value == 0)
        checkpoint()
        let later = next(), restored = Cart()
        _ = later.preserve(restored)
        #expect(later.preservation.restore()["cart"] == .restored)
        #expect(restored.all == [1, 2, 3] && restored.restores.value == 1)
        #expect(later.preservation.restore().items.isEmpty && restored.restores.value == 1)
    }

    @Test func `C42 restore is all or nothing: a failed one is undone, set aside, and reported`() throws {
        try store.write("a", PreservedState.wrap([1], version: 1))
        try store.write("b", PreservedState.wrap([2], version: 1))
        try store.write("c", PreservedState.wrap([3], version: 1))
        #expect(try store.append(PreservedState.join([[4], [5]]), to: "c"))
        let cart = Cart(), other = Cart()
        lifecycle.preserve(
            "a", in: store, snapshot: { [] },
            restore: { bytes in
                cart.restore(bytes)
                throw Broken()
            }, reset: { cart.reset() })
        _ = preserve(other, as: "b")
        let third = Cart()
        lifecycle.preserve(
            "c", in: store, snapshot: { [] }, restore: { third.restore($0) },
            apply: { if $0 == [5] { throw Broken() } else { third.add($0) } }, reset: { third.reset() })
        let outcome = preservation.restore()
        #expect(outcome.items.map(\.name) == ["a", "b", "c"])
        #expect(outcome["a"] == .cleanStart(reason: "restoring failed: Broken()") && outcome["c"] == outcome["a"])
        #expect(outcome["b"] == .restored && other.all == [2])
        #expect(cart.all == [] && cart.resets.value == 1 && third.all == [] && third.restores.value == 1)
        #expect(store.aside.map(\.name) == ["a", "c"] && store.aside[0].bytes == PreservedState.wrap([1], version: 1))
    }

    @Test func `C42 an older version is migrated, a newer one kept aside`() throws {
        try store.write("old", PreservedState.wrap([1], version: 3))
        #expect(try store.append(PreservedState.join([[2]]), to: "old"))
        try store.write("new", PreservedState.wrap([1], version: 5))
        try store.write("foreign", [1, 2, 3])
        let seen = Log<[Int]>()
        for name in ["old", "new", "foreign"] {
            lifecycle.preserve(
                name, in: store, version: 4, snapshot: { [10, 20] }, restore: { bytes, version in seen.add([Int(bytes[0]), version]) },
                apply: { delta, version in seen.add([Int(delta[0]), version]) })
        }
        let outcome = preservation.restore()
        #expect(outcome["old"] == .restored && seen.all == [[1, 3], [2, 3]])
        #expect(outcome["new"] == .cleanStart(reason: "the data has the newer version 5; this program reads up to 4"))
        #expect(outcome["foreign"] == .cleanStart(reason: "the data was not saved by `preserve`"))
        #expect(store.aside.map(\.name) == ["new", "foreign"])
        checkpoint()
        // Written as a whole, in the new version.
        #expect(try store.load("old") == .state(base: PreservedState.wrap([10, 20], version: 4), deltas: []))
    }

    @Test func `C42 a state that cannot be read or set aside is never written over`() throws {
        try store.write("cart", PreservedState.wrap([1], version: 1))
        let cart = Cart()
        let handle = preserve(cart)
        store.fail(with: Broken())
        guard case .cleanStart(let reason) = preservation.restore()["cart"] else {
            Issue.record("the state was restored")
            return
        }
        #expect(reason == "reading failed: Broken(); setting the data aside failed: Broken()")
        #expect(throws: Broken.self) { try handle.checkpoint() }
        #expect(cart.snapshots.value == 0)
        store.fail(with: nil)
        cart.set([2])
        try handle.checkpoint()
        #expect(store.aside.map(\.bytes) == [PreservedState.wrap([1], version: 1)])
        #expect(try store.read("cart") == PreservedState.wrap([2], version: 1))
    }

    @Test func `C42 no state is saved before being restored`() throws {
        try store.write("cart", PreservedState.wrap([1], version: 1))
        let cart = Cart()
        let handle = preserve(cart)
        #expect { try handle.checkpoint() } throws: { "\($0)".contains("is not restored yet") }
        #expect(preservation.checkpoint(within: .seconds(60)).map(\.name) == ["cart"])
        #expect(handle.restore()?.restored == ["cart"] && cart.all == [1])
        #expect(handle.restore() == nil)
        try handle.checkpoint()
    }

    @Test func `C42 a state registered after launch is restored at once`() throws {
        try store.write("scene", PreservedState.wrap([7], version: 1))
        _ = preservation.restore()
        let cart = Cart()
        _ = preserve(cart, as: "scene")
        #expect(cart.all == [7])
        // A second state with the same name replaces the first.
        let second = Cart()
        _ = preserve(second, as: "scene")
        #expect(second.all == [7])
        second.set([8])
        checkpoint()
        #expect(cart.snapshots.value == 0 && second.snapshots.value == 1)
    }

    // MARK: - Saving

    @Test func `C41 an unchanged state is not written again`() {
        let cart = Cart()
        cart.set([1])
        _ = preserve(cart)
        _ = preservation.restore()
        let before = store.writes
        checkpoint()
        checkpoint()
        #expect(store.writes == before + 1)
        cart.set([2])
        checkpoint()
        #expect(store.writes == before + 2)
        cart.set([1])
        checkpoint()
        #expect(store.writes == before + 3)
        // The next run does not write the state again either.
        let later = next(), restored = Cart()
        _ = later.preserve(restored)
        _ = later.preservation.restore()
        let writes = store.writes
        later.checkpoint()
        #expect(store.writes == writes && restored.snapshots.value == 1)
    }

    @Test func `C41 all states save concurrently under one deadline, and a late one is named and goes on`() async {
        let release = Parker(), started = Counter(), carts = (0..<20).map { _ in Cart() }
        lifecycle.preserve(
            "blocked", in: store,
            snapshot: {
                started.add(1)
                release.park()
                return [9]
            }, restore: { _ in })
        lifecycle.preserve("broken", in: store, snapshot: { throw Broken() }, restore: { _ in })
        for (index, cart) in carts.enumerated() { _ = preserve(cart, as: "cart-\(index)") }
        _ = preservation.restore()
        let failures = Log<[PreservationFailure]>()
        #expect(Thread.start("engine") { failures.add(preservation.checkpoint(within: .seconds(5))) })
        // All other states are saved while one blocks, and their threads are idle again. The clock stands still meanwhile.
        await until { started.value != 0 && store.names.count >= 21 && lifecycle.threads.busy == 1 }
        #expect(failures.all.isEmpty && store.names.count { $0.hasPrefix("cart-") } == 20)
        clock.advance(by: .seconds(4.9))
        #expect(failures.all.isEmpty)
        await until {
            clock.advance(by: .milliseconds(100))
            return !failures.all.isEmpty
        }
        #expect(failures.all[0].map(\.name) == ["blocked", "broken"])
        #expect(failures.all[0][0].reason.hasPrefix("the save did not finish within 5.0 seconds"), "\(failures.all[0][0])")
        #expect(failures.all[0][1].description == "cannot save the state \"broken\": Broken()")
        // The blocked snapshot was called once, and comes to its end.
        #expect(preservation.checkpoint(within: .zero).contains { $0.name == "blocked" } && started.value == 1)
        await until {
            release.unpark()
            return store.names.contains("blocked")
        }
        release.unpark()
    }

    @Test func `C41 T30 a freeze does not eat the deadline`() async {
        let release = Parker(), started = Counter()
        lifecycle.preserve(
            "slow", in: store,
            snapshot: {
                started.add(1)
                release.park()
                return []
            }, restore: { _ in })
        _ = preservation.restore()
        let failures = Log<[PreservationFailure]>()
        #expect(Thread.start("engine") { failures.add(preservation.checkpoint(within: .seconds(5))) })
        await until { started.value != 0 }
        clock.advance(by: .seconds(1))
        clock.freeze(for: .seconds(3600))
        clock.advance(by: .seconds(3))
        #expect(failures.all.isEmpty)
        release.unpark()
        await until { !failures.all.isEmpty }
        #expect(failures.all == [[]])
    }

    @Test func `C41 changes are appended, the last of them on the way to the background`() throws {
        let cart = Cart()
        cart.set([1])
        let handle = preserveChanges(cart)
        _ = preservation.restore()
        handle.record([0])
        checkpoint()
        #expect(cart.snapshots.value == 1 && store.appends == 0)
        for item in UInt8(2)...4 {
            cart.add([item])
            handle.record([item])
        }
        try handle.checkpoint()
        #expect(store.appends == 1 && cart.snapshots.value == 1)
        cart.add([5])
        handle.record([5])
        checkpoint()
        checkpoint()
        #expect(store.appends == 2 && cart.snapshots.value == 1)
        let later = next(), restored = Cart()
        let again = later.preserveChanges(restored)
        #expect(later.preservation.restore()["cart"] == .restored && restored.all == [1, 2, 3, 4, 5] && restored.restores.value == 1)
        #expect(later.preservation.launched() == nil)
        // The next run appends to the file that the first run left.
        again.record([6])
        restored.add([6])
        later.checkpoint()
        #expect(store.appends == 3 && restored.snapshots.value == 0)
        let last = later.next(), end = Cart()
        _ = last.preserveChanges(end)
        _ = last.preservation.restore()
        #expect(end.all == [1, 2, 3, 4, 5, 6])
    }

    @Test func `a change recorded while the state is being restored is saved`() throws {
        let base = Cart()
        base.set([1])
        _ = preserveChanges(base)
        _ = preservation.restore()
        checkpoint()
        let later = next(), cart = Cart(), box = Mutex<Preserved?>(nil)
        let handle = later.lifecycle.preserve(
            "cart", in: store, snapshot: { cart.snapshot() },
            restore: { bytes in
                cart.restore(bytes)
                // As another thread may do at this instant.
                cart.add([2])
                box.withLock { $0 }?.record([2])
            }, apply: { cart.add($0) })
        box.withLock { $0 = handle }
        #expect(later.preservation.restore()["cart"] == .restored && later.preservation.launched() == nil)
        later.checkpoint()
        // Once the whole is saved, changes are appended again.
        let appends = store.appends
        cart.add([3])
        handle.record([3])
        later.checkpoint()
        #expect(store.appends == appends + 1 && cart.snapshots.value == 1)
        let last = later.next(), end = Cart()
        _ = last.preserveChanges(end)
        #expect(last.preservation.restore()["cart"] == .restored && end.all == [1, 2, 3])
        box.withLock { $0 = nil }
    }

    @Test func `C41 changes that have grown beyond the whole state are replaced by the whole state`() throws {
        let cart = Cart()
        let handle = preserveChanges(cart)
        _ = preservation.restore()
        for turn in 0..<200 {
            cart.add([UInt8(turn)])
            handle.record([UInt8(turn)])
            try handle.checkpoint()
        }
        #expect(cart.snapshots.value == 4 && store.appends == 196)
        // A flood of changes between two checkpoints is not kept in memory.
        let big = [UInt8](repeating: 1, count: 400_000)
        for _ in 0..<4 { handle.record(big) }
        try handle.checkpoint()
        #expect(cart.snapshots.value == 5 && store.appends == 196)
    }

    @Test func `C41 an unsaved state is saved the next time, changes in their order`() throws {
        let cart = Cart()
        let handle = preserveChanges(cart)
        _ = preservation.restore()
        store.fail(with: Broken())
        #expect(throws: Broken.self) { try handle.checkpoint() }
        store.fail(with: nil)
        try handle.checkpoint()
        #expect(cart.snapshots.value == 2)
        cart.add([1])
        handle.record([1])
        store.fail(with: Broken())
        #expect(preservation.checkpoint(within: .seconds(60)) == [PreservationFailure(name: "cart", reason: "Broken()")])
        cart.add([2])
        handle.record([2])
        store.fail(with: nil)
        checkpoint()
        #expect(cart.snapshots.value == 2 && store.appends == 1)
        let later = next(), restored = Cart()
        _ = later.preserveChanges(restored)
        _ = later.preservation.restore()
        #expect(restored.all == [1, 2])
    }

    @Test func `one more save serves the callers that came during a save`() async throws {
        let release = Parker(), snapshots = Counter()
        let handle = lifecycle.preserve(
            "cart", in: store,
            snapshot: {
                snapshots.add(1)
                if snapshots.value == 1 { release.park() }
                return [UInt8(snapshots.value)]
            }, restore: { _ in })
        _ = preservation.restore()
        let done = Counter()
        let checkpoint: @Sendable () -> Void = {
            do { try handle.checkpoint() } catch { Issue.record("\(error)") }
            done.add(1)
        }
        #expect(Thread.start("first", checkpoint))
        await until { snapshots.value != 0 }
        for index in 0..<8 { #expect(Thread.start("other-\(index)", checkpoint)) }
        release.unpark()
        await until { done.value >= 9 }
        #expect(snapshots.value <= 9 && snapshots.value >= 2)
        #expect(try store.read("cart") == PreservedState.wrap([UInt8(snapshots.value)], version: 1))
    }

    @Test func `a checkpoint from within the same snapshot is refused, not deadlocked`() throws {
        let box = Mutex<Preserved?>(nil), refusals = Log<String>()
        let handle = lifecycle.preserve(
            "cart", in: store,
            snapshot: {
                do { try box.withLock { $0 }?.checkpoint() } catch { refusals.add("\(error)") }
                return [1]
            }, restore: { _ in })
        box.withLock { $0 = handle }
        _ = preservation.restore()
        try handle.checkpoint()
        #expect(refusals.all.count == 1 && refusals.all[0].contains("from within its own snapshot"))
        box.withLock { $0 = nil }
    }

    @Test func `no closure is called after cancel, and the captured objects are released`() throws {
        weak var held: Cart?
        var handle: Preserved?
        do {
            let cart = Cart()
            held = cart
            handle = preserve(cart)
            _ = preservation.restore()
            checkpoint()
        }
        #expect(held != nil)
        let writes = store.writes
        handle?.cancel()
        handle?.cancel()
        #expect(held == nil)
        checkpoint()
        try handle?.checkpoint()
        handle?.record([1])
        #expect(store.writes == writes && handle?.restore() == nil)
    }

    /// A store whose writes block until the blockade is opened.
    private final class BlockedStore: StateStore {
        let blockade = Blockade()
        func write(_ name: String, _ bytes: [UInt8]) throws { blockade.wait() }
        func read(_ name: String) throws -> [UInt8]? { nil }
        func remove(_ name: String) throws {}
    }

    @Test func `cancel waits for a save that has come to the store`() async {
        let blocked = BlockedStore(), cancelled = Counter()
        let item = PreservedItem(
            name: "cart", store: blocked, version: 1,
            closures: .init(snapshot: { [1] }, restore: { _, _ in }, apply: nil, reset: nil), threads: lifecycle.threads)
        #expect(item.restore(cleanStartReason: nil) == RestoreOutcome.Result.none)
        let save: @Sendable () -> Void = { item.save { _ in } }
        let cancel: @Sendable () -> Void = {
            item.cancel()
            cancelled.add(1)
        }
        #expect(Thread.start("save", save))
        await until("the store is called") { blocked.blockade.count == 1 }
        #expect(Thread.start("cancel", cancel))
        await until("the cancellation waits") {
            CloseWaits.gates.contains(ObjectIdentifier(item.gate)) || cancelled.value > 0
        }
        #expect(cancelled.value == 0)
        blocked.blockade.open()
        await until("the cancellation is over") { cancelled.value == 1 }
    }

    @Test func `T2 changes recorded from many threads during a save are all kept`() async throws {
        let cart = Cart()
        let handle = preserveChanges(cart)
        _ = preservation.restore()
        await withTaskGroup(of: Void.self) { group in
            for writer in UInt8(0)..<4 {
                group.addTask {
                    for turn in UInt8(0)..<50 {
                        // Recorded under the lock that the snapshot takes, so that the order is the same in both.
                        cart.items.withLock { items in
                            items.append(writer * 50 + turn)
                            handle.record([writer * 50 + turn])
                        }
                        if turn % 10 == 0 { do { try handle.checkpoint() } catch { Issue.record("\(error)") } }
                    }
                }
            }
        }
        try handle.checkpoint()
        let later = next(), restored = Cart()
        _ = later.preserveChanges(restored)
        _ = later.preservation.restore()
        #expect(Set(restored.all) == Set(0..<200))
    }

    @Test func `changes are joined and split without loss, and other bytes are not split`() {
        for deltas in [[], [[]], [[1]], [[1], [], [2, 3]]] as [[[UInt8]]] { #expect(PreservedState.split(PreservedState.join(deltas)) == deltas) }
        let joined = PreservedState.join([[1, 2], [3]])
        for cut in 1..<joined.count where cut != 6 { #expect(PreservedState.split(Array(joined.prefix(cut))) == nil, "cut to \(cut)") }
        #expect(PreservedState.unwrap([1, 2, 3]) == nil && PreservedState.unwrap(Array("PSV1".utf8)) == nil)
        #expect(PreservedState.unwrap(PreservedState.wrap([7], version: 1 << 31))?.version == 1 << 31)
    }

    @Test func `an empty state keeps its version, and a version below zero is kept as zero`() {
        for (version, kept) in [(0, 0), (3, 3), (0x0403_0201, 0x0403_0201), (-1, 0)] {
            let wrapped = PreservedState.wrap([], version: version), unwrapped = PreservedState.unwrap(wrapped)
            #expect(wrapped.count == 8 && unwrapped?.bytes == [] && unwrapped?.version == kept, "\(version)")
        }
    }
}
