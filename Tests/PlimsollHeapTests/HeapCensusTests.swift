import CAllocationCounter
import CPlimsollHeap
import Foundation
import Plimsoll
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import PlimsollHeap
@testable import plimsoll_bench

/// Censuses of the process that runs the tests, other tests included. Only kinds that this suite plants are counted.
@Suite(.serialized, .timeLimit(.minutes(5)), .needs(allocation_count_works(), "a sanitizer is in front of malloc"))
struct HeapCensusTests {
    private func rows(_ census: HeapCensus) -> [String: HeapCensus.Row] {
        Dictionary(census.rows.map { ($0.name, $0) }) { first, _ in first }
    }

    /// Takes a census on a separate thread, which may block.
    private func census() async throws -> HeapCensus {
        try await withCheckedThrowingContinuation { done in
            precondition(Thread.start("census") { done.resume(with: Result { try HeapCensus.take() }) })
        }
    }

    @Test func `twenty planted kinds are counted exactly, and named as Swift names them`() async throws {
        let planted = PlantedHeap(2000), found = rows(try await census())
        #expect(planted.truth.count == 20)
        for (name, count) in planted.truth {
            #expect(found[name]?.count == count, "\(name)")
        }
        withExtendedLifetime(planted) {}
    }

    @Test func `a census distinguishes elements of storage from spare capacity`() async throws {
        struct Odd { var first: Int32, second: Int8 }
        var array: [Odd] = []
        array.reserveCapacity(1000)
        for _ in 0..<10 { array.append(Odd(first: 1, second: 2)) }
        let row = try #require(rows(try await census()).first { $0.key.hasPrefix("_ContiguousArrayStorage<") && $0.key.hasSuffix("Odd>") }?.value)
        #expect(row.count == 1 && row.usedBytes == 10 * MemoryLayout<Odd>.stride)
        #expect(row.capacityBytes == array.capacity * MemoryLayout<Odd>.stride && row.bytes >= row.capacityBytes ?? .max)
        withExtendedLifetime(array) {}
    }

    @Test func `closures are named by what they capture`() async throws {
        struct Captured { var numbers = (1, 2, 3, 4) }
        func generic<each Value>(_ values: repeat each Value) -> () -> Int {
            {
                var count = 0; repeat ((each values) is Int ? (count += 1) : ()); return count
            }
        }
        let object = PlantedSub(), value = Captured(), texts = ["a": [1.5]] as [String: [Double]], pair: (Int, UInt8)? = (1, 2)
        weak let held = object
        var changed = 1
        // The runtime's own parser of such names ends the process at the generic closure.
        let closures: [() -> Int] = [
            { object.more.0 + value.numbers.0 }, { texts.count + (pair?.0 ?? 0) }, { held == nil ? 1 : 2 },
            {
                changed += 1; return changed
            }, generic(1, "two", 3.0),
        ]
        let found = rows(try await census()), sub = censusName(PlantedSub.self)
        #expect(found.keys.contains { $0.hasPrefix("closure capturing \(sub), ") && $0.hasSuffix("Captured") })
        #expect(found["closure capturing Dictionary<String, Array<Double>>, Optional<(Int, UInt8)>"] != nil)
        #expect(found["closure capturing Optional<\(sub)>"] != nil)
        #expect(closures.map { $0() }.reduce(0, +) > 0)
    }

    @Test func `freed objects are not counted`() async throws {
        final class Freed { var words = (1, 2, 3) }
        var objects = (0..<3000).map { _ in Freed() }
        // Holes between the other blocks: some blocks go to free lists of each sort.
        for index in stride(from: 2999, through: 0, by: -3) { objects.remove(at: index) }
        let found = try await census().rows.first { $0.name.hasSuffix("Freed") }
        #expect(found?.count == 2000)
        withExtendedLifetime(objects) {}
    }

    @Test func `a block without a name is counted for the object that points to the block`() async throws {
        let owners = (0..<50).map { _ in PlantedOwner(bytes: 100_000) }
        let census = try await census(), row = rows(census)[censusName(PlantedOwner.self)]
        guard census.way == .chunks else { return #expect(row?.ownedBytes == 0) }
        // Another object may claim one or two blocks by an old pointer to an earlier block at the same place.
        let owned = row?.ownedBlocks ?? 0, bytes = row?.ownedBytes ?? 0
        #expect(row?.count == 50 && (45...50).contains(owned), "\(row?.count ?? 0) objects own \(owned)")
        #expect((owned * 100_000..<owned * 110_000).contains(bytes), "\(bytes)")
        withExtendedLifetime(owners) {}
    }

    @Test func `a sample stands for a very large number of blocks without a name`() async throws {
        let owners = (0..<120_000).map { _ in PlantedOwner(bytes: 100) }
        let census = try await census(), row = rows(census)[censusName(PlantedOwner.self)]
        guard census.way == .chunks else { return #expect(row?.ownedBytes == 0) }
        let bytes = owners.count * 104
        #expect((bytes * 95 / 100...bytes * 105 / 100).contains(row?.ownedBytes ?? 0), "\(row?.ownedBytes ?? 0) of \(bytes)")
        #expect(abs((row?.ownedBlocks ?? 0) - owners.count) < owners.count / 20)
        withExtendedLifetime(owners) {}
    }

    // A thread's cache of small blocks that is empty, partly filled, full, and without room for all freed blocks.
    @Test(arguments: [0, 1, 6, 7, 8, 20]) func `chunks are recognized for any number of small free blocks that a thread keeps`(freed: Int)
        async throws
    {
        let way = try await withCheckedThrowingContinuation { (done: CheckedContinuation<HeapCensus.Way, any Error>) in
            let isStarted = Thread.start("census") {
                let blocks = (0..<freed).map { _ in malloc(40) }
                for block in blocks { free(block) }
                // Learns the marks of chunks anew.
                done.resume(with: Result { try HeapCensus.take(of: getpid()).way })
            }
            precondition(isStarted)
        }
        #expect(way == .chunks)
    }

    /// Makes `count` mappings: every other page is read-only.
    private static func makeMappings(_ count: Int) -> Bool {
        let pages = mmap(nil, count * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        guard let pages, pages != MAP_FAILED else { return false }
        return stride(from: 0, to: count, by: 2).allSatisfy { mprotect(pages + $0 * 4096, 4096, PROT_READ) == 0 }
    }

    @Test func `a process with 30,000 mappings is counted, and one with 60,000 is refused with the reason`() async {
        await #expect(processExitsWith: .success) {
            let planted = PlantedHeap(200)
            guard Self.makeMappings(30_000) else { exit(2) }
            guard let census = try? HeapCensus.take(), census.way == .chunks else { exit(3) }
            let found = Dictionary(census.rows.map { ($0.name, $0.count) }) { first, _ in first }
            guard withExtendedLifetime(planted, { planted.truth.allSatisfy { found[$0.key] == $0.value } }) else { exit(4) }
            guard Self.makeMappings(30_000) else { exit(5) }
            do {
                _ = try HeapCensus.take()
                exit(6)
            } catch {
                exit("\(error)".contains("the process has more than 49,152 mappings") ? 0 : 7)
            }
        }
    }

    @Test func `where process_vm_readv is forbidden the process reads its file in proc`() async {
        await #expect(processExitsWith: .success) {
            var filter = CallFilter()
            filter.refuse(CallFilter.readProcess, EPERM)
            guard filter.install() else { exit(2) }
            let planted = PlantedHeap(200)
            guard let census = try? HeapCensus.take(), census.way == .chunks else { exit(3) }
            let found = Dictionary(census.rows.map { ($0.name, $0.count) }) { first, _ in first }
            withExtendedLifetime(planted) { exit(planted.truth.allSatisfy { found[$0.key] == $0.value } ? 0 : 4) }
        }
    }

    @Test func `a census works after all files of the process were closed, and closes no file that has the number now`() async {
        await #expect(processExitsWith: .success) {
            guard (try? HeapCensus.take()) != nil else { exit(2) }
            let file = (Int32(0)..<1024).first { number in
                let target = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(number)")
                return target?.hasSuffix("/pagemap") == true
            }
            let other = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
            guard let file, dup2(other, file) == file else { exit(3) }
            guard let census = try? HeapCensus.take(), census.way == .chunks else { exit(4) }
            var status = stat()
            exit(fstat(file, &status) == 0 && status.st_mode & S_IFMT == S_IFSOCK ? 0 : 5)
        }
    }

    @Test func `growth lists the types that have grown since the census before, and no others`() async throws {
        let before = try await census()
        let leak = (0..<7000).map { _ in PlantedSub() }
        let grown = try await census().growth(since: before)
        let row = try #require(grown.first { $0.name == censusName(PlantedSub.self) })
        #expect(row.count == 7000 && row.bytes > 7000 * 40)
        #expect(grown.allSatisfy { $0.totalBytes > 0 } && zip(grown, grown.dropFirst()).allSatisfy { $0.totalBytes >= $1.totalBytes })
        withExtendedLifetime(leak) {}
    }

    @Test func `blocks that only begin like an object are not counted`() async throws {
        final class Genuine { var number = 1 }
        let genuine = (0..<10).map { _ in Genuine() }
        // The header of an object, at the start of blocks that are far too large for the object.
        let decoys = (0..<777).map { _ in
            let block = UnsafeMutableRawPointer.allocate(byteCount: 4000, alignment: 16)
            block.copyMemory(from: Unmanaged.passUnretained(genuine[0]).toOpaque(), byteCount: 16)
            return block
        }
        let found = try await census().rows.first { $0.name.hasSuffix("Genuine") }
        #expect(found?.count == 10)
        for block in decoys { block.deallocate() }
        withExtendedLifetime(genuine) {}
    }

    @Test func `a census while threads allocate and free loses little and miscounts nothing that stays`() async throws {
        let planted = PlantedHeap(500), isOver = Atomic(false), seed = newSeed()
        let threads = 2, ended = Counter()
        for index in 0..<threads {
            let isStarted = Thread.start("churn") {
                var random = SeededGenerator(seed: seed &+ UInt64(index)), held: [Any] = []
                while !isOver.load(ordering: .relaxed) {
                    let size = Int.random(in: 1...3000, using: &random)
                    held.append(Bool.random(using: &random) ? [UInt8](repeating: 1, count: size) : PlantedSub())
                    if held.count > 2000 { held.removeSubrange(0..<Int.random(in: 1...1500, using: &random)) }
                }
                ended.add(1)
            }
            precondition(isStarted)
        }
        for _ in 0..<4 {
            let census = try await census(), found = rows(census)
            for (name, count) in planted.truth where !name.hasSuffix("PlantedSub") { #expect(found[name]?.count == count, "\(name)") }
            #expect(census.lostBytes < census.usedBytes / 100)
        }
        isOver.store(true, ordering: .relaxed)
        await until("the threads to end") { ended.value == threads }
        withExtendedLifetime(planted) {}
    }

    @Test func `a census touches no untouched memory`() async {
        // In a process of its own: other tests of this one use memory meanwhile.
        await #expect(processExitsWith: .success) {
            let size = 512 << 20, block = UnsafeMutableRawPointer.allocate(byteCount: size, alignment: 16)
            guard let before = ProcessMemory.resident else { exit(2) }
            guard (try? HeapCensus.take()) != nil, let after = ProcessMemory.resident else { exit(3) }
            block.deallocate()
            // The census itself keeps some memory.
            exit(after - before < size / 2 ? 0 : 4)
        }
    }

    @Test func `a page that begins like a mapped chunk without a size is no block`() async {
        // In a process of its own: a size out of range would end the process.
        await #expect(processExitsWith: .success) {
            let page = mmap(nil, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
            guard let page, page != MAP_FAILED else { exit(2) }
            // Glibc's flag of a chunk that is a mapping of its own.
            page.storeBytes(of: 2, toByteOffset: 8, as: UInt64.self)
            let word = UInt64(UInt(bitPattern: page)) + 16
            exit(HeapCensus.bytes(reachedFrom: [[word]], atMost: 1000) == [0] ? 0 : 3)
        }
    }

    private static func makePages(_ count: Int) throws -> UnsafeMutableRawPointer {
        let pages = mmap(nil, count * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        try #require(pages != MAP_FAILED)
        return try #require(pages)
    }

    /// Returns an empty array with room, and the metadata of its storage.
    private static func emptyArray<Element>(of type: Element.Type) -> (array: [Element], metadata: UInt64) {
        var array: [Element] = []
        array.reserveCapacity(10)
        return (array, unsafeBitCast(array, to: UnsafeRawPointer.self).load(as: UInt64.self))
    }

    /// Fills a zeroed page as glibc and Swift do: a chunk that is a mapping of its own, and the storage of an array.
    private static func writeStorage(_ metadata: UInt64, used: UInt64, capacity: UInt64, to page: UnsafeMutableRawPointer) {
        page.storeBytes(of: 4096 | 2, toByteOffset: 8, as: UInt64.self)
        page.storeBytes(of: metadata, toByteOffset: 16, as: UInt64.self)
        // One reference.
        page.storeBytes(of: 3, toByteOffset: 24, as: UInt64.self)
        page.storeBytes(of: used, toByteOffset: 32, as: UInt64.self)
        page.storeBytes(of: capacity << 1, toByteOffset: 40, as: UInt64.self)
    }

    @Test func `elements for which a block has no room are not counted`() async throws {
        struct Claimed { var number = 1 }
        let (array, metadata) = Self.emptyArray(of: Claimed.self), page = try Self.makePages(1)
        defer { munmap(page, 4096) }
        // The block has room for 506.
        Self.writeStorage(metadata, used: 1000, capacity: 1000, to: page)
        let census = try await census(), row = census.rows.first { $0.name.hasSuffix("Claimed>") }
        guard census.way == .chunks else { return }
        #expect(row?.count == 2 && row?.usedBytes == 0)
        withExtendedLifetime(array) {}
    }

    /// Returns the number of elements of all arrays with that metadata; `nil` if malloc has no chunks to walk.
    private static func elements(_ metadata: UInt64, by way: HeapCensus.Way) throws -> UInt64? {
        var failure: Int32 = 0, count = 0
        let opened = plimsoll_census_open(0, &failure), heap = try #require(opened)
        defer { plimsoll_census_close(heap) }
        let hasChunks = plimsoll_census_has_chunks(heap)
        guard way == .scan || hasChunks else { return nil }
        failure = plimsoll_census_take(heap, way == .scan ? PLIMSOLL_CENSUS_SCAN : PLIMSOLL_CENSUS_CHUNKS)
        try #require(failure == 0)
        let types = UnsafeBufferPointer(start: plimsoll_census_types(heap, &count), count: count)
        return types.first { $0.metadata == metadata }?.used ?? 0
    }

    @Test(arguments: [HeapCensus.Way.chunks, .scan])
    func `blocks behind a page that is in memory and cannot be read are counted`(way: HeapCensus.Way) async throws {
        struct Behind { var number = 1 }
        let (array, metadata) = Self.emptyArray(of: Behind.self), pages = try Self.makePages(3)
        defer { munmap(pages, 3 * 4096) }
        for page in 0..<3 { pages.storeBytes(of: 0, toByteOffset: page * 4096, as: UInt64.self) }
        Self.writeStorage(metadata, used: 7, capacity: 10, to: pages + 2 * 4096)
        try #require(mprotect(pages + 4096, 4096, PROT_NONE) == 0)
        let found = try await withCheckedThrowingContinuation { (done: CheckedContinuation<UInt64?, any Error>) in
            precondition(Thread.start("census") { done.resume(with: Result { try Self.elements(metadata, by: way) }) })
        }
        #expect(found ?? 7 == 7)
        withExtendedLifetime(array) {}
    }

    @Test func `the census checks its test objects, and leaves them out of the result`() async throws {
        let whole = try await census()
        #expect(!whole.rows.contains { $0.name.contains("HeapCanary") })
        let nothing = HeapCensus(
            way: .chunks, rows: [], namedBytes: 0, ownedBytes: 0, unnamedBytes: 0, freeBytes: 0, lostBytes: 0, processorSeconds: 0)
        #expect(HeapCanary().missed(by: nothing) == "0 of 3 objects" && nothing.coverage == 1)
    }
}

private enum ProcessMemory {
    /// Resident bytes of this process.
    static var resident: Int? {
        let fields = (try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8))?.split(separator: " ") ?? []
        return fields.count > 1 ? Int(fields[1]).map { $0 * 4096 } : nil
    }
}
