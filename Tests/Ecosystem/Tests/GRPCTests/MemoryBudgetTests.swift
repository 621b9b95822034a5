import Foundation
import GRPCCore
import Plimsoll
import PlimsollGRPC
import PlimsollService
import PlimsollTesting
import TestServers
import Testing

/// Calls that hold too much, one test after another, because the list of requests belongs to the process. The allocator
/// is not asked here: handlers charge the bytes that they would hold.
@Suite(.serialized, .timeLimit(.minutes(5))) struct MemoryBudgetTests {
    private static func handlers(_ size: ByteCount) -> [String: Shop.Handler] {
        let importing: Shop.Handler = { request, _ in
            let budget = try #require(MemoryBudget.current)
            budget.charge(size)
            try await untilCancelled()
            return Shop.Response { _ in [:] }
        }
        let streaming: Shop.Handler = { request, _ in
            Shop.Response { writer in
                let budget = try #require(MemoryBudget.current)
                try await writer.write(Array(budget.name.utf8))
                budget.charge(size)
                try await untilCancelled()
                return [:]
            }
        }
        return ["shop.Orders/Import": importing, "shop.Orders/Stream": streaming]
    }

    /// Returns the number of cancelled requests, from the status of any manager.
    private static func cancelled() throws -> Int {
        struct Status: Decodable {
            struct Requests: Decodable {
                var cancelledOverLimit: Int
                var cancelledForPressure: Int
            }
            var requests: Requests
        }
        let json = try ResourceManager(source: ScriptedPressureSource()).status.json()
        let requests = try JSONDecoder().decode(Status.self, from: Data(json.utf8)).requests
        return requests.cancelledOverLimit + requests.cancelledForPressure
    }

    @Test(arguments: Way.allCases) func `a call above its limit ends as exhausted, and others are served`(way: Way) async throws {
        let interceptor = MemoryBudgetInterceptor { $0.method == "Get" ? nil : .mebibytes(8) }
        try await withRequestList {
            let before = try Self.cancelled()
            try await way.serving([interceptor], Self.handlers(.mebibytes(9))) { caller in
                #expect(await caller.outcome("shop.Orders/Get") == "served")
                #expect(await caller.outcome("shop.Orders/Import") == "resourceExhausted")
                var names: [[UInt8]] = []
                let error = await #expect(throws: RPCError.self) { names = try await caller.stream("shop.Orders/Stream", [[1]]) { _ in } }
                #expect(error?.code == .resourceExhausted && error?.message.contains("held 9 MiB of memory, above its limit of 8 MiB") == true)
                #expect(names.isEmpty && error?.message.hasPrefix("shop.Orders/Stream") == true, "\(error?.message ?? "")")
                #expect(await caller.outcome("shop.Orders/Get") == "served")
            }
            // The thread that cancels a call counts the call afterwards. Not left to the next test, which counts too.
            try await until("the count") { try Self.cancelled() >= before + 2 }
        }
    }

    @Test(arguments: Way.allCases) func `an answer may be longer than the limit, as sent messages no longer count`(way: Way) async throws {
        let part = [UInt8](repeating: 1, count: 1 << 20)
        let export: Shop.Handler = { _, _ in
            Shop.Response { writer in
                let budget = try #require(MemoryBudget.current)
                // Kept by the handler.
                budget.charge(.mebibytes(2))
                for _ in 0..<20 {
                    try budget.check()
                    try await writer.write(part)
                }
                try await writer.write(contentsOf: [part, part])
                try budget.check()
                try await writer.write(Array("\(budget.live)".utf8))
                return [:]
            }
        }
        try await withRequestList {
            try await way.serving([MemoryBudgetInterceptor(limit: .mebibytes(8))], ["shop.Orders/All": export]) { caller in
                let answers = try await caller.stream("shop.Orders/All", [[1]]) { _ in }
                #expect(answers.dropLast().map(\.count) == Array(repeating: 1 << 20, count: 22))
                #expect(answers.last.map { String(decoding: $0, as: UTF8.self) } == "2 MiB")
            }
        }
    }

    @Test func `a call that holds most while memory is short is to be tried again`() async throws {
        let source = ScriptedPressureSource()
        var policy = PressurePolicy.standard
        policy.ladder = EscalationLadder.standard.cancellingLargestRequest(above: .mebibytes(4))
        let manager = ResourceManager(source: source, policy: policy)
        try await withRequestList {
            // Begun and ended here, because this manager also cancels requests of other tests.
            let before = try Self.cancelled(), running = Task { try await manager.run() }
            source.push(usage: .mebibytes(250), limit: .mebibytes(256))
            try await Way.allCases[0].serving([MemoryBudgetInterceptor()], Self.handlers(.mebibytes(9))) { caller in
                let error = await #expect(throws: RPCError.self) { _ = try await caller.unary("shop.Orders/Import", [1], .defaults) }
                #expect(error?.code == .unavailable && error?.message.contains("memory is short") == true)
            }
            // The manager reports after the call was told to end, perhaps after the call's end.
            await until("the report") {
                manager.reports.contains { $0.cancelledRequest == "shop.Orders/Import" && $0.cancelledBytes == .mebibytes(9) }
            }
            try await until("the count") { try Self.cancelled() > before }
            running.cancel()
            try await running.value
        }
    }
}
