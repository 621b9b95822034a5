import ArgumentParser
import Foundation
import Glibc
import Plimsoll
import PlimsollJemalloc
import Synchronization

/// Measures the error of the count: the bytes that a budget reports against the bytes that the request holds.
struct ErrorCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "error", abstract: "Compare the count of budgets with the bytes that requests hold.")

    @Option(help: "Number of requests of each kind.") var requests = 200
    @Option(help: "Requests at a time.") var parallel = 16

    /// The way in which a request takes memory.
    enum Kind: String, CaseIterable { case suspensions, children, unstructured, actors, churn }

    func run() async throws {
        try await Jemalloc.meterRequests()
        var all: [Double] = []
        for kind in Kind.allCases {
            let errors = try await errors(kind)
            all += errors
            print(
                String(
                    format: "# %@: median %.1f %%, 95th %.1f %%", kind.rawValue, median(errors), quantile(errors, 0.95))
            )
        }
        figure("budget.error", median(all), "percent")
        figure("budget.error-p95", quantile(all, 0.95), "percent")
    }

    private func errors(_ kind: Kind) async throws -> [Double] {
        var errors: [Double] = [], next = 0
        try await withThrowingTaskGroup(of: Double.self) { group in
            while errors.count < requests {
                while next < requests, next - errors.count < parallel {
                    next += 1
                    group.addTask { try await error(kind) }
                }
                if let error = try await group.next() { errors.append(error) }
            }
        }
        return errors
    }

    /// Returns the error of one request of 1 to 5 MiB, in percent.
    private func error(_ kind: Kind) async throws -> Double {
        try await withMemoryBudget(name: kind.rawValue) {
            let held = Blocks(), wanted = Int.random(in: 1 << 20...5 << 20)
            switch kind {
            case .suspensions:
                while held.bytes < wanted {
                    held.take(.random(in: 1...128 << 10))
                    await Task.yield()
                }
            case .children:
                await withTaskGroup { group in
                    for _ in 0..<4 {
                        group.addTask { while held.bytes < wanted { held.take(.random(in: 1...256 << 10)) } }
                    }
                }
            case .unstructured:
                await Task { while held.bytes < wanted { held.take(.random(in: 1...64 << 10)) } }.value
            case .actors:
                let store = Store(held)
                while held.bytes < wanted { await store.take(.random(in: 1...64 << 10)) }
            case .churn:
                // Four times as much as stays.
                while held.bytes < wanted {
                    for _ in 0..<4 { Blocks().take(.random(in: 1...128 << 10)) }
                    held.take(.random(in: 1...128 << 10))
                    await Task.yield()
                }
            }
            let told = MemoryBudget.current?.live.bytes ?? 0, real = held.bytes
            return abs(Double(told - real)) / Double(real) * 100
        }
    }

    private actor Store {
        let blocks: Blocks
        init(_ blocks: Blocks) { self.blocks = blocks }
        func take(_ size: Int) { blocks.take(size) }
    }
}

/// Blocks of malloc, with their sizes as the allocator has them.
private final class Blocks: Sendable {
    private let state = Mutex<(blocks: [UInt], bytes: Int)>(([], 0))

    /// The bytes that the allocator has set aside for a block; not in Swift's overlay of the C library.
    private static let size = unsafeBitCast(
        dlsym(nil, "malloc_usable_size"), to: (@convention(c) (UnsafeMutableRawPointer) -> Int).self)

    var bytes: Int { state.withLock { $0.bytes } }

    func take(_ size: Int) {
        let block = malloc(size)!
        memset(block, 1, size)
        state.withLock {
            $0.blocks.append(UInt(bitPattern: block))
            $0.bytes += Self.size(block)
        }
    }

    deinit { for block in state.withLock({ $0.blocks }) { free(UnsafeMutableRawPointer(bitPattern: block)) } }
}
