import ArgumentParser
import Foundation
import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollHeap
import PlimsollTesting
import Synchronization

/// Takes censuses of heaps whose contents are known.
struct HeapBenchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "heap", abstract: "Take censuses of heaps with known contents: exactness, time, and leaks.")

    @Option(help: "Objects of the most frequent of twenty kinds; about a quarter of all.") var objects = 72_000
    @Option(help: "Number of censuses of each heap.") var runs = 5

    func validate() throws {
        try Allowed.count(objects, "--objects", in: 100...1_000_000)
        try Allowed.count(runs, "--runs", in: 1...1000)
    }

    func run() throws {
        try reportingFailure {
            let counts = ["--objects", "\(objects)", "--runs", "\(runs)"]
            _ = try part(["exact"] + counts)
            let jemalloc = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
            if access(jemalloc, R_OK) == 0 {
                _ = try part(["exact", "--label", "jemalloc"] + counts, preload: jemalloc)
            } else {
                Output.line("# jemalloc is not installed (libjemalloc2): not measured")
            }
            _ = try part(["time", "--runs", "\(runs)"])
            _ = try part(["churn", "--runs", "\(runs * 200)"])
            let leaks = PlantedLeak.allCases, first = try leaks.count { try part(["leak", "--leak", $0.rawValue]) }
            Output.line("figure heap.leak.first \(first) of_\(leaks.count)")
        }
    }

    /// Runs a part in a process of its own, whose heap has nothing else. Returns true if the part succeeded.
    private func part(_ arguments: [String], preload: String? = nil) throws -> Bool {
        var program = ChildProcess.itself, words = ["plimsoll-bench", "_heap"] + arguments
        if let preload {
            let path = try FileManager.default.destinationOfSymbolicLink(atPath: program)
            (program, words) = ("/usr/bin/env", ["env", "LD_PRELOAD=\(preload)", path] + words.dropFirst())
        }
        return try ChildProcess(program, words, endsWithParent: true).waitForEnd() == .exited(0)
    }
}

/// Ways to leak.
enum PlantedLeak: String, CaseIterable, ExpressibleByArgument {
    case array, cycle, cache, closures
}

/// A heap with known contents.
struct HeapPartCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "_heap", abstract: "Part of `plimsoll-bench heap`.", shouldDisplay: false)

    enum Part: String, ExpressibleByArgument { case exact, time, churn, leak }

    @Argument var part: Part
    @Option var objects = 72_000
    @Option var runs = 5
    @Option var label = ""
    @Option var leak = PlantedLeak.array

    func run() throws {
        switch part {
        case .exact: try exact()
        case .time: try time()
        case .churn: takeMany()
        case .leak: try findLeak()
        }
    }

    /// Kinds that are counted exactly in each of the censuses, while five threads allocate and free.
    private func exact() throws {
        let planted = PlantedHeap(objects), churn = HeapChurn(threads: 5)
        defer { churn.end() }
        var exact = Set(planted.truth.keys), shares: [Double] = []
        for _ in 0..<runs {
            let census = try HeapCensus.take()
            let found = Dictionary(census.rows.map { ($0.name, $0.count) }) { first, _ in first }
            for (name, count) in planted.truth where found[name] != count {
                if exact.remove(name) != nil { Output.line("# \(name): \(found[name] ?? 0) instead of \(count)") }
            }
            shares.append(census.coverage * 100)
        }
        let suffix = label.isEmpty ? "" : "-\(label)"
        Output.line("# \(planted.truth.values.reduce(0, +)) objects of known kinds\(suffix)")
        Output.line("figure heap.kinds.exact\(suffix) \(exact.count) of_\(planted.truth.count)")
        Bench.figure("heap.named\(suffix)", median(shares) ?? 0, "percent")
        withExtendedLifetime(planted) {}
    }

    /// Processor time for a heap of 1 GiB, the longest gap of another thread, and memory.
    private func time() throws {
        var planted: [PlantedHeap] = []
        while (ByteCount(Self.resident ?? .max)) < .gibibytes(1) { planted.append(PlantedHeap(36_000)) }
        let watch = GapWatch()
        defer { watch.end() }
        var times: [Double] = [], gaps: [Double] = [], growth: [Double] = []
        for _ in 0..<runs {
            let before = Self.resident ?? 0
            _ = watch.longest()
            let began = SteadyClock.now, census = try HeapCensus.take(), took = SteadyClock.now - began
            let during = watch.longest()
            SteadyClock.sleep(took)
            let without = watch.longest()
            times.append(census.processorSeconds * 1000 / (Double(census.usedBytes) / Double(1 << 30)))
            gaps.append((during - without) * 1000)
            growth.append(Double((Self.resident ?? 0) - before) / Double(1 << 20))
        }
        Bench.figure("heap.census", median(times) ?? 0, "ms_per_GiB")
        Bench.figure("heap.gap", median(gaps) ?? 0, "ms")
        Bench.figure("heap.memory", growth.max() ?? 0, "MiB")
        withExtendedLifetime(planted) {}
    }

    /// Takes many censuses while five threads allocate and free.
    private func takeMany() {
        let planted = PlantedHeap(2000), churn = HeapChurn(threads: 5)
        defer { churn.end() }
        let taken = (0..<runs).count { number in
            do {
                _ = try HeapCensus.take()
                return true
            } catch {
                Output.line("# census \(number): \(error)")
                return false
            }
        }
        Output.line("figure heap.churn \(taken) of_\(runs)")
        withExtendedLifetime(planted) {}
    }

    /// Fails unless the leak is the first line of growth.
    private func findLeak() throws {
        let planted = PlantedHeap(20_000), churn = HeapChurn(threads: 2)
        defer { churn.end() }
        let before = try HeapCensus.take()
        var kept: [Any] = [], closures: [() -> Int] = []
        var way: [PlantedNode] = [], array: [PlantedRecord] = [], cache: [String: PlantedRecord] = [:]
        // More than the threads beside hold now and then.
        let count = 200_000, expected: String
        switch leak {
        case .array:
            for number in 0..<count { array.append(PlantedRecord(number: number)) }
            expected = "_ContiguousArrayStorage<\(censusName(PlantedRecord.self))>"
        case .cycle:
            for _ in 0..<count { PlantedNode.leak(by: &way) }
            expected = censusName(PlantedNode.self)
        case .cache:
            for number in 0..<count { cache["\(number)"] = PlantedRecord(number: number) }
            expected = "_DictionaryStorage<String, \(censusName(PlantedRecord.self))>"
        case .closures:
            for number in 0..<count {
                let record = PlantedRecord(number: number)
                closures.append { record.number + kept.count }
            }
            kept.append(1)
            expected = "closure capturing"
        }
        let growth = try HeapCensus.take().growth(since: before)
        Output.line("# leak of kind \(leak.rawValue): \(growth.first?.name ?? "nothing") grew most")
        withExtendedLifetime((planted, way, array, cache, closures)) {}
        guard growth.first?.name.hasPrefix(expected) ?? false else { throw ExitCode.failure }
    }

    private static var resident: Int? {
        guard let file = fopen("/proc/self/statm", "r") else { return nil }
        defer { fclose(file) }
        var line = [CChar](repeating: 0, count: 128)
        guard fgets(&line, Int32(line.count), file) != nil else { return nil }
        let fields = String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self).split(
            separator: " ")
        return fields.count > 1 ? Int(fields[1]).map { $0 * 4096 } : nil
    }
}

/// Threads that allocate and free.
private final class HeapChurn: Sendable {
    private let isOver = Atomic(false)
    private let running = Atomic(0)

    init(threads: Int) {
        for seed in 1...threads {
            running.wrappingAdd(1, ordering: .relaxed)
            let isStarted = Thread.start("churn") { [self] in
                var random = SeededGenerator(seed: UInt64(seed)), held: [Any] = []
                while !isOver.load(ordering: .relaxed) {
                    let size = Int.random(in: 1...3000, using: &random)
                    held.append(Bool.random(using: &random) ? [UInt8](repeating: 1, count: size) : PlantedNode())
                    if held.count > 2000 { held.removeSubrange(0..<Int.random(in: 1...1500, using: &random)) }
                }
                running.wrappingSubtract(1, ordering: .relaxed)
            }
            precondition(isStarted)
        }
    }

    func end() {
        isOver.store(true, ordering: .relaxed)
        while running.load(ordering: .relaxed) > 0 { usleep(1000) }
    }
}

/// A thread that allocates all the time and notes its longest pause.
private final class GapWatch: Sendable {
    private let isOver = Atomic(false)
    private let longestNanoseconds = Atomic<Int64>(0)

    init() {
        let isStarted = Thread.start("gaps") { [self] in
            var last = SteadyClock.now
            while !isOver.load(ordering: .relaxed) {
                free(malloc(100))
                let now = SteadyClock.now
                longestNanoseconds.max((now - last).inNanoseconds, ordering: .relaxed)
                last = now
            }
        }
        precondition(isStarted)
    }

    /// Returns the longest pause since the last call, in seconds.
    func longest() -> Double { Double(longestNanoseconds.exchange(0, ordering: .relaxed)) / 1e9 }
    func end() { isOver.store(true, ordering: .relaxed) }
}

/// Kinds that only leaks have.
struct PlantedRecord { var number: Int, more = (1, 2, 3, 4) }
final class PlantedNode {
    var next: PlantedNode?
    var more = (1, 2, 3, 4)

    /// Leaks a node. One that had never left this function would lie on the stack with optimization.
    @inline(never) static func leak(by way: inout [PlantedNode]) {
        let node = PlantedNode()
        node.next = node
        way.append(node)
        way.removeAll(keepingCapacity: true)
    }
}
