import InMemoryTracing
import Logging
import Plimsoll
import PlimsollLifecycle
import PlimsollService
import PlimsollTesting
import Synchronization
import TestServers
import Testing
import Tracing

/// Spans of actions on memory, with the trait `Tracing`.
@Suite(.timeLimit(.minutes(5))) struct TracingTests {
    private static let tracer = {
        let tracer = InMemoryTracer()
        InstrumentationSystem.bootstrap(tracer)
        return tracer
    }()

    /// The span of this test's release. All managers in the process share the tracer.
    private static var release: FinishedInMemorySpan? {
        tracer.finishedSpans.first {
            $0.operationName == "plimsoll release" && $0.attributes["plimsoll.asked_bytes"]?.toSpanAttribute() == .int64(4096)
        }
    }

    private enum TenantKey: ServiceContextKey { typealias Value = String }

    @Test func `an action is a span with times and numbers, and a handler sees the context of the task's begin`() async throws {
        _ = Self.tracer
        let source = ScriptedPressureSource()
        let manager = ResourceManager(source: source)
        let plimsoll = ResourceService(manager, logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        manager.register("buffers", byteCount: { 1 << 20 }, release: { $0 })
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await plimsoll.run() }
            await until("readiness") { manager.lifecycle.readiness.isReady }
            _ = await manager.release(4096)
            await until("the span") { Self.release != nil }

            let seen = Mutex("nothing")
            var context = ServiceContext.topLevel
            context[TenantKey.self] = "42"
            let task = ServiceContext.withValue(context) {
                manager.beginBackgroundTask("flush") { task, _ in
                    seen.withLock { $0 = ServiceContext.current?[TenantKey.self] ?? "no context" }
                    task.end()
                }
            }
            manager.expireBackgroundTasks(.operator, within: .seconds(60))
            #expect(seen.withLock { $0 } == "42" && !task.isActive)
            group.cancelAll()
            try await group.waitForAll()
        }
        let span = try #require(Self.release)
        #expect(span.endInstant.nanosecondsSinceEpoch >= span.startInstant.nanosecondsSinceEpoch && span.parentSpanID == nil)
        #expect(span.attributes["plimsoll.origin"]?.toSpanAttribute() == .string("operator"))
        #expect(span.attributes["plimsoll.outcome"]?.toSpanAttribute() == .string("done"))
    }
}
