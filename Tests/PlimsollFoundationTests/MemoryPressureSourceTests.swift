import Dispatch
import Foundation
import Plimsoll
import PlimsollLifecycle
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import PlimsollFoundation

/// The memory-pressure sources of the process, fed by a manager on scripted readings. Serialized: all sources of the
/// process are fed together.
@Suite(.serialized, .timeLimit(.minutes(5))) struct MemoryPressureSourceTests {
    /// A running manager that feeds the sources, and the levels that the sources have received.
    struct Feed {
        let running: RunningManager
        let registration: Registration
        let posted: Log<PressureLevel>

        /// Rehearses `level`, and returns when the sources have received the level.
        func reach(_ level: PressureLevel) async {
            running.manager.simulate(level, for: .seconds(86_400))
            // Repeated announcements of one level pause: the clock moves until the level is announced.
            await until("\(level)") {
                await running.available(.mebibytes(900), after: .seconds(1))
                return posted.all.last == level
            }
        }
    }

    private func feeding(_ body: @escaping @Sendable (Feed) async throws -> Void) async throws {
        // The clock moves while a thread feeds the sources. A thread that a busy machine delays must not count as stuck.
        var policy = PressurePolicy.standard
        policy.handlerBudget = .seconds(86_400)
        try await RunningManager.run(policy: policy) { running in
            await running.available(.mebibytes(900))
            let posted = Log<PressureLevel>(), registration = running.manager.feedMemoryPressureSources()
            // Observers are called in the order of registration: the sources are fed before this one is called.
            running.manager.observe(from: .normal) { posted.add($0.level) }
            try await body(Feed(running: running, registration: registration, posted: posted))
            registration.cancel()
        }
    }

    private typealias Events = Log<DispatchSource.MemoryPressureEvent>

    /// Returns an active source that logs events.
    private func noting(
        _ mask: DispatchSource.MemoryPressureEvent, on queue: DispatchQueue?, in events: Events
    ) -> any DispatchSourceMemoryPressure {
        let source = DispatchSource.makeMemoryPressureSource(eventMask: mask, queue: queue)
        source.setEventHandler { [unowned source] in events.add(source.data) }
        source.activate()
        return source
    }

    @Test func `T10 a source receives the levels of its mask, and no others`() async throws {
        try await feeding { feed in
            let queue = DispatchQueue(label: "pressure"), masked = Events(), all = Events()
            let sources = [noting([.warning, .critical], on: queue, in: masked), noting(.all, on: queue, in: all)]
            #expect(sources.map(\.mask) == [[.warning, .critical], .all] && sources.allSatisfy { !$0.isCancelled && $0.handle == 0 })
            for level in [PressureLevel.warning, .critical, .normal, .critical] {
                await feed.reach(level)
                queue.sync {}
            }
            #expect(all.all == [.warning, .critical, .normal, .critical] && masked.all == [.warning, .critical, .critical])
        }
    }

    @Test func `a handler runs on the queue of the source, by default a global one, and delays no observer`() async throws {
        try await feeding { feed in
            let key = DispatchSpecificKey<String>(), queue = DispatchQueue(label: "pressure"), blockade = Blockade()
            queue.setSpecific(key: key, value: "pressure")
            let places = Log<String>()
            let own = DispatchSource.makeMemoryPressureSource(eventMask: .critical, queue: queue)
            own.setEventHandler {
                places.add(DispatchQueue.getSpecific(key: key) ?? "none")
                blockade.wait()
            }
            own.activate()
            let global = DispatchSource.makeMemoryPressureSource(eventMask: .warning)
            global.setEventHandler { places.add(Thread.isMainThread ? "main" : DispatchQueue.getSpecific(key: key) ?? "global") }
            global.resume()  // Code for older systems resumes a source instead of activating it.
            await feed.reach(.critical)
            await until("the handler") { blockade.count == 1 }
            await feed.reach(.warning)
            await until("the other handler") { places.all.count == 2 }
            #expect(places.all == ["pressure", "global"])
            blockade.open()
        }
    }

    @Test func `events of a suspended source are kept and combined`() async throws {
        try await feeding { feed in
            let queue = DispatchQueue(label: "pressure"), events = Events()
            let source = noting(.all, on: queue, in: events)
            source.suspend()
            await feed.reach(.warning)
            await feed.reach(.critical)
            queue.sync {}
            #expect(events.all == [])
            source.resume()
            queue.sync {}
            #expect(events.all == [[.warning, .critical]])
            await feed.reach(.normal)
            queue.sync {}
            #expect(events.all == [[.warning, .critical], .normal])
        }
    }

    @Test func `a source that is activated late has the events since its creation`() async throws {
        try await feeding { feed in
            let queue = DispatchQueue(label: "pressure"), events = Events()
            let source = DispatchSource.makeMemoryPressureSource(eventMask: .all, queue: queue)
            source.setEventHandler { [unowned source] in events.add(source.data) }
            await feed.reach(.warning)
            queue.sync {}
            #expect(events.all == [])
            source.activate()
            queue.sync {}
            #expect(events.all == [.warning])
        }
    }

    @Test func `the cancel handler runs once, after the last event handler`() async throws {
        try await feeding { feed in
            let queue = DispatchQueue(label: "pressure"), lines = Log<String>(), blockade = Blockade()
            let source = DispatchSource.makeMemoryPressureSource(eventMask: .all, queue: queue)
            source.setEventHandler {
                blockade.wait()
                lines.add("event")
            }
            source.setCancelHandler { lines.add("cancelled") }
            source.activate()
            await feed.reach(.warning)
            await until("the handler") { blockade.count == 1 }
            source.cancel()
            source.cancel()
            #expect(source.isCancelled && lines.all == [])
            await feed.reach(.critical)
            blockade.open()
            await lines.contains("cancelled")
            await feed.reach(.normal)
            queue.sync {}
            #expect(lines.all == ["event", "cancelled"])
        }
    }

    @Test func `a handler may make and cancel sources`() async throws {
        try await feeding { feed in
            let queue = DispatchQueue(label: "pressure"), lines = Log<String>(), events = Events()
            let made = Mutex<[SendableSource]>([])
            let source = DispatchSource.makeMemoryPressureSource(eventMask: .all, queue: queue)
            source.setEventHandler { [unowned source] in
                let next = noting(.all, on: queue, in: events)
                made.withLock { $0.append(SendableSource(next)) }
                source.cancel()
            }
            source.setCancelHandler { lines.add("cancelled") }
            source.activate()
            await feed.reach(.warning)
            await lines.contains("cancelled")
            await feed.reach(.critical)
            queue.sync {}
            #expect(events.all == [.critical] && made.withLock { $0.count } == 1)
        }
    }

    @Test func `a source that is released without a cancel is forgotten`() async throws {
        try await feeding { feed in
            let queue = DispatchQueue(label: "pressure"), lines = Log<String>(), events = Events()
            var dropped: (any DispatchSourceMemoryPressure)? = DispatchSource.makeMemoryPressureSource(eventMask: .all, queue: queue)
            dropped?.setEventHandler { lines.add("event") }
            dropped?.activate()
            let kept = noting(.all, on: queue, in: events)
            dropped = nil
            await feed.reach(.warning)
            queue.sync {}
            #expect(events.all == [.warning] && lines.all == [] && MemoryPressureSources.count == 1)
            withExtendedLifetime(kept) {}
        }
    }

    @Test func `a feed ends with its registration`() async throws {
        try await feeding { feed in
            let queue = DispatchQueue(label: "pressure"), events = Events()
            let source = noting(.all, on: queue, in: events)
            feed.registration.cancel()
            await feed.reach(.warning)
            queue.sync {}
            #expect(events.all == [])
            withExtendedLifetime(source) {}
        }
    }

    @Test func `C38 a quiesce set suspends a memory-pressure source as any other`() async throws {
        try await feeding { feed in
            let queue = DispatchQueue(label: "pressure"), events = Events(), set = QuiesceSet(time: .running)
            let source = noting(.all, on: queue, in: events)
            set.add(source, name: "pressure")
            set.setState(.inactive)
            await feed.reach(.warning)
            queue.sync {}
            #expect(events.all == [])
            set.setState(.active)
            queue.sync {}
            #expect(events.all == [.warning])
        }
    }

    // MARK: The other way: a manager that follows such a source

    @Test func `a manager follows a memory-pressure source`() async throws {
        try await feeding { feed in
            let follower = ResourceManager(source: DispatchPressureSource()), levels = Log<PressureLevel>()
            #expect(follower.capabilities["memory pressure"]?.isLive == true)
            follower.observe(from: .normal) { levels.add($0.level) }
            let run = Task { try await follower.run() }
            await feed.reach(.critical)
            await until("the level") { follower.level == .critical && levels.all.last == .critical }
            await feed.reach(.normal)
            await until("the end") { follower.level == .normal }
            run.cancel()
            try await run.value
        }
    }

    @Test func `a manager whose readings come from memory-pressure sources does not feed these`() async throws {
        try await feeding { feed in
            let follower = ResourceManager(source: DispatchPressureSource()), levels = Log<PressureLevel>()
            follower.feedMemoryPressureSources()
            follower.observe(from: .normal) { levels.add($0.level) }
            let run = Task { try await follower.run() }
            let queue = DispatchQueue(label: "pressure"), events = Events(), source = noting(.all, on: queue, in: events)
            follower.simulate(.critical, for: .seconds(600))
            await until("the level") { levels.all.last == .critical }
            queue.sync {}
            #expect(events.all == [])
            run.cancel()
            try await run.value
            withExtendedLifetime(source) {}
        }
    }

    @Test func `combined events raise the level for one reading, and leave the lowest`() {
        var level = DispatchPressureSource.Announced()
        #expect(level.take() == .normal)
        level.receive(.warning)
        #expect(level.take() == .warning && level.take() == .warning)
        level.receive([.normal, .critical])
        #expect(level.take() == .critical && level.take() == .normal)
        // Two events between two readings: the first is not lost.
        level.receive(.critical)
        level.receive(.warning)
        #expect(level.take() == .critical && level.take() == .warning)
        level.receive([])
        #expect(level.take() == .warning)
    }

    @Test func `this file compiles the article's snippet`() throws {
        func lines(_ text: String) -> [String] { text.split(separator: "\n").map { $0.trimmingCharacters(in: .whitespaces) } }
        let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appendingPathComponent("../..")
        guard let article = try? String(contentsOf: root.appendingPathComponent("docs/Adapters.md"), encoding: .utf8) else { return }
        let section = try #require(article.components(separatedBy: "\n## ").first { $0.hasPrefix("Dispatch\n") })
        let snippets = section.components(separatedBy: "```swift\n").dropFirst().map { $0.components(separatedBy: "```")[0] }
        let own = lines(try String(contentsOfFile: #filePath, encoding: .utf8)).joined(separator: "\n")
        #expect(snippets.count == 2)
        for snippet in snippets { #expect(own.contains(lines(snippet).joined(separator: "\n")), "\(snippet)") }
    }
}

/// A source kept in a lock.
// Unchecked: the source is only kept.
private struct SendableSource: @unchecked Sendable {
    let source: any DispatchSourceMemoryPressure
    init(_ source: any DispatchSourceMemoryPressure) { self.source = source }
}

/// The snippets of docs/Adapters.md. The first is a class as written on a Mac.
final class TrimsOnPressure {
    private let source: any DispatchSourceMemoryPressure

    init(queue: DispatchQueue, trim: @escaping @Sendable (_ isCritical: Bool) -> Void) {
        source = DispatchSource.makeMemoryPressureSource(eventMask: [.warning, .critical], queue: queue)
        source.setEventHandler { [unowned source] in trim(source.data.contains(.critical)) }
        source.activate()
    }
}

private func feedOnce(_ manager: ResourceManager) {
    manager.feedMemoryPressureSources()
}
