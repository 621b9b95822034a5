import GRPCCore
import Plimsoll
import PlimsollGRPC
import PlimsollLifecycle
import PlimsollService
import PlimsollTesting
import TestServers
import Testing

@Suite(.timeLimit(.minutes(5))) struct LoadSheddingTests {
    /// Returns a shedder that refuses at once. The test sets the extent.
    private func shedder(limit: Int? = nil, patience: Duration = .zero, retryAfter: ClosedRange<Int>? = nil) -> RequestShedder {
        var policy = SheddingPolicy(limit: limit, seed: 42, patience: patience)
        for extent in [QuiesceExtent.open, .half, .quarter, .least] { policy[retryAfter: extent] = retryAfter }
        return RequestShedder("grpc", policy: policy)
    }

    private static let priority: LoadSheddingInterceptor.Priority = { method, _ in
        method.method == "Pay" ? .critical : method.method == "Export" ? .sheddable : .normal
    }

    @Test(arguments: Way.allCases) func `calls are passed on unchanged while memory is plentiful`(way: Way) async throws {
        let shedding = LoadSheddingInterceptor(shedder(), priority: Self.priority)
        try await way.serving([shedding]) { caller in
            #expect(await caller.outcome("shop.Orders/Get") == "served")
            let messages = (0..<100).map { [UInt8](repeating: $0, count: 1000) }
            let answers = try await caller.stream("shop.Orders/Export", messages) { _ in }
            #expect(answers == messages)
            #expect(await caller.outcome("shop.Orders/None") == "unimplemented")
        }
        let counts = shedding.shedder.counts
        #expect(counts.admitted == ["normal": 1, "sheddable": 1, "critical": 0] && shedding.shedder.statistics.running == 0)
    }

    @Test(arguments: Way.allCases) func `calls are served by priority at the level of the manager`(way: Way) async throws {
        let source = ScriptedPressureSource(), manager = ResourceManager(source: source)
        let shedding = LoadSheddingInterceptor(manager, policy: SheddingPolicy(seed: 42, patience: .zero), priority: Self.priority)
        source.push(usage: .mebibytes(100), limit: .mebibytes(256))
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await manager.run() }
            await source.waitUntilIdle()
            try await manager.lifecycle.launch()
            try await way.serving([shedding]) { caller in
                for name in ["Get", "Pay", "Export"] { #expect(await caller.outcome("shop.Orders/\(name)") == "served") }
                manager.simulate(.critical, for: .seconds(600))
                await until("the level") { shedding.shedder.extent <= .quarter }
                for _ in 0..<8 {
                    #expect(await caller.outcome("shop.Orders/Pay") == "served")
                    #expect(await caller.outcome("shop.Orders/Export") == "unavailable")
                }
            }
            group.cancelAll()
            try await group.waitForAll()
        }
        #expect(shedding.shedder.counts.refused["sheddable"]?.values.reduce(0, +) == 8 && shedding.shedder.statistics.running == 0)
        #expect(try manager.status.json().contains("\"grpc\""))
    }

    @Test(arguments: Way.allCases) func `health checks are served while all calls are refused`(way: Way) async throws {
        let shedder = shedder(retryAfter: 5...40)
        shedder.quiesce(to: .paused)
        try await way.serving([LoadSheddingInterceptor(shedder, priority: Self.priority)]) { caller in
            #expect(await caller.outcome("shop.Orders/Pay") == "unavailable")
            #expect(await caller.outcome("grpc.health.v1.Health/Check") == "served")
        }
    }

    @Test(arguments: Way.allCases) func `a refusal is unavailable, with the reason and a spread time of the retry`(way: Way) async throws {
        let shedder = shedder(retryAfter: 5...40)
        shedder.quiesce(to: .quarter)
        try await way.serving([LoadSheddingInterceptor(shedder, priority: Self.priority)]) { caller in
            var waits: Set<Int> = []
            for _ in 0..<40 {
                let error = try await caller.refusal("shop.Orders/Export")
                #expect(error.code == .unavailable && error.message.hasPrefix("not served: memory is short"))
                let values = Array(error.metadata[stringValues: "grpc-retry-pushback-ms"])
                waits.insert(try #require(values.count == 1 ? Int(values[0]) : nil))
            }
            #expect(waits.allSatisfy { (5000...40_000).contains($0) } && waits.count > 8, "\(waits)")
        }
    }

    @Test(arguments: Way.allCases) func `a client with a retry policy comes back after the time of the refusal`(way: Way) async throws {
        // The client's own back-off would take an hour.
        let policy = RetryPolicy(
            maxAttempts: 3, initialBackoff: .seconds(3600), maxBackoff: .seconds(3600), backoffMultiplier: 1, retryableStatusCodes: [.unavailable])
        var options = CallOptions.defaults
        options.executionPolicy = .retry(policy)
        let shedder = shedder(retryAfter: 0...0), attempts = Count(), retrying = options
        shedder.quiesce(to: .quarter)
        let shedding = LoadSheddingInterceptor(
            shedder,
            priority: { _, _ in
                attempts.add() < 3 ? .sheddable : .critical
            })
        try await way.serving([shedding]) { caller in
            #expect(await caller.outcome("shop.Orders/Get", retrying) == "served")
        }
        #expect(attempts.value == 3 && shedder.counts.refused["sheddable"]?["arrivals"] == 2)
    }

    @Test(arguments: Way.allCases) func `a call has its place until the response stream has ended`(way: Way) async throws {
        let shedder = shedder(limit: 1), gate = Gate(), received = Count()
        let export: Shop.Handler = { _, _ in
            Shop.Response { writer in
                try await writer.write([1])
                await gate.wait()
                try await writer.write([2])
                return [:]
            }
        }
        try await way.serving([LoadSheddingInterceptor(shedder)], ["shop.Orders/Export": export]) { caller in
            async let exported = caller.stream("shop.Orders/Export", []) { _ in received.add() }
            await until("the first message") { received.value == 1 }
            #expect(shedder.statistics.running == 1)
            let refusal = try await caller.refusal("shop.Orders/Get")
            #expect(refusal.code == .unavailable && refusal.message.contains("the limit of concurrent requests is reached"))
            #expect(await caller.outcome("grpc.health.v1.Health/Check") == "served" && shedder.statistics.running == 1)
            gate.open()
            let answers = try await exported
            #expect(answers == [[1], [2]])
            await until("the end of the call") { shedder.statistics.running == 0 }
            #expect(await caller.outcome("shop.Orders/Get") == "served")
        }
    }

    @Test(arguments: Way.allCases) func `a call that fails has ended, wherever it fails`(way: Way) async throws {
        let shedder = shedder(limit: 1)
        let handlers: [String: Shop.Handler] = [
            "shop.Orders/Throws": { _, _ in throw RPCError(code: .notFound, message: "no such order") },
            "shop.Orders/Fails": { _, _ in Shop.Response(error: RPCError(code: .aborted, message: "sold")) },
            "shop.Orders/Breaks": { _, _ in Shop.Response { _ in throw RPCError(code: .dataLoss, message: "torn") } },
        ]
        try await way.serving([LoadSheddingInterceptor(shedder)], handlers) { caller in
            for _ in 0..<3 {
                for (name, code) in [("Throws", RPCError.Code.notFound), ("Fails", .aborted), ("Breaks", .dataLoss)] {
                    #expect(await caller.outcome("shop.Orders/\(name)") == "\(code)")
                    await until("the end of the call") { shedder.statistics.running == 0 }
                }
            }
        }
        #expect(shedder.statistics.refused == 0)
    }

    #if HTTP2
    @Test func `a call of a client that is gone ends with the handler`() async throws {
        let shedder = shedder(limit: 1), received = Count()
        let export: Shop.Handler = { _, context in
            Shop.Response { writer in
                while !context.cancellation.isCancelled { try await writer.write([UInt8](repeating: 0, count: 10_000)) }
                return [:]
            }
        }
        try await Way.socket.serving([LoadSheddingInterceptor(shedder)], ["shop.Orders/Export": export]) { caller in
            let call = Task { try await caller.stream("shop.Orders/Export", []) { _ in received.add() } }
            await until("a message") { received.value > 0 }
            call.cancel()
            _ = try? await call.value
            await until("the end of the call") { shedder.statistics.running == 0 }
        }
    }
    #endif

    @Test(arguments: Way.allCases) func `a call without room waits, and is served once memory is plentiful`(way: Way) async throws {
        let shedder = shedder(patience: .seconds(600))
        shedder.quiesce(to: .quarter)
        try await way.serving([LoadSheddingInterceptor(shedder, priority: Self.priority)]) { caller in
            async let export = caller.outcome("shop.Orders/Export")
            await until("the call to wait") { shedder.waiting == 1 }
            #expect(await caller.outcome("shop.Orders/Pay") == "served")
            shedder.quiesce(to: .open)
            #expect(await export == "served")
        }
        #expect(shedder.statistics.refused == 0 && shedder.statistics.waiting == 0)
    }

    #if HTTP2
    @Test func `a call that is cancelled while it waits never reaches the handler`() async throws {
        let shedder = shedder(patience: .seconds(600)), handled = Count(), witness = Witness()
        shedder.quiesce(to: .quarter)
        let export: Shop.Handler = { request, context in
            handled.add()
            return try await Shop.echo(request, context)
        }
        let shedding = LoadSheddingInterceptor(shedder, priority: Self.priority)
        try await Way.socket.serving([witness, shedding], ["shop.Orders/Export": export]) { caller in
            let call = Task { await caller.outcome("shop.Orders/Export") }
            await until("the call to wait") { shedder.waiting == 1 }
            call.cancel()
            #expect(await call.value != "served")
            await until("the news of it") { witness.contexts.allSatisfy(\.cancellation.isCancelled) }
            shedder.quiesce(to: .open)
            await until("the end of the wait") { shedder.counts.admitted["sheddable"] == 1 && shedder.statistics.running == 0 }
            #expect(handled.value == 0)
            #expect(await caller.outcome("shop.Orders/Export") == "served")
        }
    }
    #endif

    @Test func `a handler that throws a refusal refuses the call`() async throws {
        let shedder = shedder(retryAfter: 7...7)
        shedder.quiesce(to: .quarter)
        let export: Shop.Handler = { request, context in
            try await shedder.run(.sheddable) { try await Shop.echo(request, context) }
        }
        try await Way.inProcess.serving([], ["shop.Orders/Export": export]) { caller in
            let error = try await caller.refusal("shop.Orders/Export")
            #expect(error.code == .unavailable && Array(error.metadata[stringValues: "grpc-retry-pushback-ms"]) == ["7000"])
        }
    }
}
