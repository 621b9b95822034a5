import Dispatch
import Glibc
import Plimsoll
import PlimsollJemalloc
import Synchronization

// Checks that budgets count a request's memory in any place of allocation. Each check reports the failure. The last
// line gives `matrix` the number of checks that hold.

let mebibyte = 1 << 20

/// Allocates and fills bytes, which no optimizer removes.
func block(_ bytes: Int) -> [UInt8] {
    [UInt8](unsafeUninitializedCapacity: bytes) { buffer, count in
        memset(buffer.baseAddress!, 1, bytes)
        count = bytes
    }
}

/// Keeps values alive until the end of a check.
final class Kept: Sendable {
    private let blocks = Mutex<[[UInt8]]>([])
    func keep(_ block: [UInt8]) { blocks.withLock { $0.append(block) } }
}

actor Store {
    private var blocks: [[UInt8]] = []
    func add(_ bytes: Int) { blocks.append(block(bytes)) }
}

struct Checks {
    var passed = 0, failed = 0

    mutating func check(_ name: String, _ holds: Bool, _ found: @autoclosure () -> Any = "") {
        if holds { passed += 1 } else { failed += 1; print("failed: \(name) \(found())") }
    }

    /// Checks that the budget is within 15 % of the bytes that a request took, and 192 KiB: the most that three threads
    /// may not have reported.
    mutating func check(_ name: String, _ budget: ByteCount, takes bytes: Int) {
        check(name, abs(budget.bytes - bytes) <= bytes * 15 / 100 + 192 << 10, "\(budget) instead of \(ByteCount(bytes))")
    }
}

/// Takes jemalloc's callback of this thread, as another part of a program might.
func takeCallback() {
    typealias Control =
        @convention(c) (UnsafePointer<CChar>, UnsafeMutableRawPointer?, UnsafeMutablePointer<Int>?, UnsafeMutableRawPointer?, Int) -> CInt
    typealias Callback = @convention(c) (UnsafeMutableRawPointer?, UInt64, UInt64) -> Void
    let control = unsafeBitCast(dlsym(nil, "mallctl"), to: Control.self)
    var thunk: (Callback, UnsafeMutableRawPointer?) = ({ _, _, _ in }, nil)
    precondition(control("experimental.thread.activity_callback", nil, nil, &thunk, MemoryLayout.size(ofValue: thunk)) == 0)
}

/// Makes each thread of the pool allocate memory that belongs to no request. Returns that memory.
func fillBeforeTheStart() async -> [[UInt8]] {
    await withTaskGroup(of: [[UInt8]].self) { group in
        for _ in 0..<64 { group.addTask { (0..<4).map { _ in block(mebibyte) } } }
        return await group.reduce(into: []) { $0 += $1 }
    }
}

var checks = Checks()
// The callback belongs to a thread, and after a suspension another thread may run: so a run tests either one or the
// other.
let takesCallback = getenv("TAKE_CALLBACK") != nil
if takesCallback { takeCallback() }
let before = takesCallback ? [] : await fillBeforeTheStart()
do { try await Jemalloc.meterRequests() } catch {
    // Prints the reason, for the rows in which another allocator serves the process.
    print("refused")
    print(error)
    exit(0)
}
// The request runs on any threads of the pool.
let small = try await withMemoryBudget(name: "small") {
    await withTaskGroup { group in
        for _ in 0..<64 { group.addTask { for _ in 0..<8 { _ = block(64 << 10).count; await Task.yield() } } }
    }
    return MemoryBudget.current!.peak
}
checks.check("memory from before the start is no request's", small < .mebibytes(16), small)
withExtendedLifetime(before) {}
checks.check("a second call is fine", (try? await Jemalloc.meterRequests()) != nil)

// Tests a budget in place.
withMemoryMeter(name: "blocks") { budget in
    var blocks = (0..<40).map { _ in block(64 << 10) }
    checks.check("blocks in place", budget.live, takes: 40 * 80 << 10)
    let peak = budget.peak
    blocks = []
    checks.check("freed blocks are subtracted", budget.live, takes: 0)
    checks.check("the peak stays", budget.peak >= peak)
    _ = blocks
}

/// Runs a request in a separate budget and returns the live bytes at the end.
func live(_ body: @Sendable @escaping (Kept) async throws -> Void) async throws -> ByteCount {
    let kept = Kept()
    let live = try await withMemoryBudget(name: "request") {
        try await body(kept)
        return MemoryBudget.current!.live
    }
    withExtendedLifetime(kept) {}
    return live
}

let one = mebibyte * 5 / 4  // jemalloc sets 1.25 MiB aside for an array of 1 MiB and its header.
checks.check(
    "across suspensions",
    try await live { kept in
        for _ in 0..<8 {
            kept.keep(block(mebibyte))
            await Task.yield()
        }
    }, takes: 8 * one)
checks.check(
    "child tasks",
    try await live { kept in
        await withTaskGroup { group in for _ in 0..<4 { group.addTask { kept.keep(block(mebibyte)) } } }
    }, takes: 4 * one)
checks.check("an unstructured task", try await live { kept in await Task { kept.keep(block(2 * mebibyte)) }.value }, takes: 5 * mebibyte / 2)
let store = Store()
checks.check("a default actor", try await live { _ in for _ in 0..<16 { await store.add(64 << 10) } }, takes: 16 * 80 << 10)
checks.check(
    "a part inside a request",
    try await live { kept in
        let part = try await withMemoryBudget(name: "part") {
            kept.keep(block(2 * mebibyte))
            return MemoryBudget.current!.live
        }
        guard abs(part.bytes - 5 * mebibyte / 2) < mebibyte else { throw CancellationError() }
    }, takes: 5 * mebibyte / 2)

// Tests a manual charge: a foreign thread allocates, and the request frees.
checks.check(
    "charged, and freed by the request",
    try await live { _ in
        let made: [UInt8] = await withCheckedContinuation { continuation in
            DispatchQueue(label: "foreign").async { continuation.resume(returning: block(mebibyte)) }
        }
        MemoryBudget.current!.charge(ByteCount(one))
        _ = made.count
    }, takes: 0)

// Tests requests above the limit.
do {
    try await withMemoryBudget(.mebibytes(32), name: "POST /import") {
        let kept = Kept()
        while true {
            try Task.checkCancellation()
            kept.keep(block(mebibyte))
            await Task.yield()
        }
    }
} catch let excess as MemoryBudgetExceeded {
    checks.check("cancelled above the limit", excess.held > .mebibytes(32) && excess.held < .mebibytes(36), excess)
    checks.check("by its limit", !excess.isForPressure && excess.name == "POST /import" && excess.limit == .mebibytes(32))
}
do {
    _ = try withMemoryMeter(.mebibytes(8), name: "in place") { budget in
        var blocks: [[UInt8]] = []
        while blocks.count < 64 {
            try budget.check()
            blocks.append(block(mebibyte))
        }
        return blocks.count
    }
    checks.check("a check throws above the limit", false)
} catch let excess as MemoryBudgetExceeded { checks.check("a check throws above the limit", excess.held < .mebibytes(12), excess) }

// Outside a budget no memory is counted, and no budget is left.
checks.check("no budget outside", MemoryBudget.current == nil)

// Runs many requests at once, nested, on all threads: none crashes, and each stays within the bounds.
let wrong = Atomic<Int>(0)
await withTaskGroup { group in
    for number in 0..<200 {
        group.addTask {
            for _ in 0..<20 {
                let bytes = try? await withMemoryBudget(name: "\(number)") {
                    let kept = block(mebibyte / 2)
                    let inner = try await withMemoryBudget(name: "inner") {
                        let more = block(256 << 10)
                        await Task.yield()
                        return more.count
                    }
                    return (MemoryBudget.current!.live, kept.count + inner)
                }
                guard let bytes, bytes.0 > .kibibytes(256), bytes.0 < .mebibytes(2) else { wrong.add(1, ordering: .relaxed); continue }
            }
        }
    }
}
checks.check("nested budgets on all threads", wrong.load(ordering: .relaxed) < 40, wrong.load(ordering: .relaxed))

print("\(checks.failed == 0 ? "counts" : "miscounts")")
print("\(checks.passed) of \(checks.passed + checks.failed) checks of budgets")
