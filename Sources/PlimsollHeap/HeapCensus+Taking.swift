import CPlimsollHeap
import CPlimsollMemory
import Synchronization

extension HeapCensus {
    /// Takes a census.
    ///
    /// Swift's layout in memory is not promised on Linux, so each census must name objects that the call itself makes.
    /// If the walk of malloc's blocks does not find them, a scan is tried, and if that fails, an error is thrown.
    ///
    /// Blocks the calling thread, for about half a second for 1 GiB of small objects (`make bench-evidence`). Threads of
    /// Swift's pool should not call. One census runs at a time. Maps 8 MiB, of which a small heap needs a part.
    ///
    /// - Throws: `HeapCensusError` if the process may not read its memory through the kernel, or if the objects in
    ///   memory are not laid out as expected. The process is unharmed.
    /// - Complexity: O(bytes of the heap).
    public static func take() throws(HeapCensusError) -> HeapCensus {
        try taker.withLock { taker throws(HeapCensusError) in try taker.take() }
    }

    /// Returns the bytes of the blocks to which each of the roots, and no other of them, leads.
    ///
    /// - Parameters:
    ///   - roots: Words of values, pointers among them. The values must live until the call returns.
    ///   - words: Words to look at.
    /// - Returns: `nil` if the roots lead to more than `words` words, or if the size of a block is not known, as under
    ///   another malloc than those of glibc and jemalloc.
    package static func bytes(reachedFrom roots: [[UInt64]], atMost words: Int) -> [Int]? {
        taker.withLock { taker in
            taker.memory().flatMap { HeapReach.bytes(from: roots, in: $0, atMost: words) }
        }
    }

    // No lock of others is taken under this one: a census calls neither users' code nor code that waits.
    private static let taker = Mutex(CensusTaker())

    /// Takes a census of another process, which need not know this library.
    ///
    /// The process goes on meanwhile and is not changed in any way. A program in another language, or of another
    /// version of Swift, shows as a low `coverage`.
    ///
    /// - Parameter process: The PID. The kernel must let the caller read the process's memory: the caller is root with
    ///   CAP_SYS_PTRACE, or has the same user and, where `/proc/sys/kernel/yama/ptrace_scope` is 1, started the process.
    /// - Throws: `HeapCensusError` if the process's memory cannot be read, or if the process ended meanwhile.
    /// - Complexity: O(bytes of the heap).
    public static func take(of process: Int32) throws(HeapCensusError) -> HeapCensus {
        func failed(_ reason: String) -> HeapCensusError {
            HeapCensusError("cannot take a census of the heap of process \(process) because \(reason)")
        }
        guard process > 0 else { throw failed("a PID is greater than 0") }
        var failure: Int32 = 0
        guard let heap = plimsoll_census_open(process, &failure) else {
            throw failed(
                """
                its memory cannot be read: \(CensusTaker.text(failure)); run as the user of that process, and see \
                /proc/sys/kernel/yama/ptrace_scope
                """)
        }
        defer { plimsoll_census_close(heap) }
        let way = CensusTaker.walk(of: heap) ?? .scan
        failure = plimsoll_census_take(heap, way.number)
        guard failure == 0 else { throw failed("its mappings cannot be read: \(CensusTaker.text(failure))") }
        let census = CensusTaker.read(heap, way)
        guard plimsoll_census_is_readable(heap) else { throw failed("the process ended meanwhile") }
        return census
    }
}

/// Memory of the censuses of the process, made with the first.
private struct CensusTaker: ~Copyable {
    private var heap: OpaquePointer?

    mutating func take() throws(HeapCensusError) -> HeapCensus {
        var failure: Int32 = 0
        if heap == nil { heap = plimsoll_census_open(0, &failure) }
        guard let heap else {
            throw HeapCensusError(
                """
                cannot take a census of the heap because the process cannot read its own memory through the kernel: \
                \(Self.text(failure)); where that is forbidden, allow process_vm_readv or /proc/self/mem
                """)
        }
        let canary = HeapCanary()
        var failures: [String] = []
        let ways = [Self.walk(of: heap), .scan].compactMap { $0 }
        for way in ways {
            failure = plimsoll_census_take(heap, way.number)
            guard failure == 0 else {
                let reason = "/proc/self/maps cannot be read: \(Self.text(failure))"
                throw HeapCensusError("cannot take a census of the heap because \(reason)")
            }
            var census = Self.read(heap, way)
            if way == .scan { census.countUnnamed() }
            if let missed = canary.missed(by: census) {
                let totals = plimsoll_census_totals(heap)
                failures.append(
                    """
                    \(way): \(missed) among \(census.rows.count) types, \(totals.mappings) mappings, \
                    \(totals.read_bytes) bytes read, \(totals.lost_bytes) skipped
                    """)
            } else {
                census.rows.removeAll { HeapCanary.isOwn($0) }
                return census
            }
        }
        throw HeapCensusError(
            """
            cannot take a census of the heap because objects made for a test were not found \
            (\(failures.joined(separator: "; "))); this Swift or malloc lays out memory in another way
            """)
    }

    /// Returns the way to walk all blocks of malloc; `nil` if there is none.
    static func walk(of heap: OpaquePointer) -> Way? {
        if plimsoll_census_has_chunks(heap) { return .chunks }
        return plimsoll_census_has_tree(heap) ? .pages : nil
    }

    /// Returns the process's memory as blocks; `nil` if blocks cannot be told.
    mutating func memory() -> BlockMemory? {
        var failure: Int32 = 0
        if heap == nil { heap = plimsoll_census_open(0, &failure) }
        guard let heap, Self.walk(of: heap) != nil, plimsoll_census_refresh(heap) == 0 else { return nil }
        return BlockMemory(heap: heap)
    }

    static func text(_ failure: Int32) -> String {
        withUnsafeTemporaryAllocation(of: CChar.self, capacity: 256) { text in
            plimsoll_census_explain(failure, text.baseAddress, text.count)
            return String(cString: text.baseAddress!)
        }
    }

    static func read(_ heap: OpaquePointer, _ way: Way) -> HeapCensus {
        var names = ObjectNames(heap), count = 0, rows: [String: HeapCensus.Row] = [:]
        let types = UnsafeBufferPointer(start: plimsoll_census_types(heap, &count), count: count)
        for type in types where type.count > 0 {
            let name = names.name(of: type)
            rows[name, default: HeapCensus.Row(name: name, count: 0, bytes: 0, ownedBlocks: 0, ownedBytes: 0)].add(type)
        }
        let totals = plimsoll_census_totals(heap)
        return HeapCensus(
            way: way, rows: rows.values.sorted(by: HeapCensus.isLarger),
            namedBytes: Int(totals.named_bytes), ownedBytes: Int(totals.owned_bytes),
            unnamedBytes: Int(totals.unnamed_bytes), freeBytes: Int(totals.free_bytes),
            lostBytes: Int(totals.lost_bytes), processorSeconds: Double(totals.processor_nanoseconds) / 1e9)
    }
}

/// Blocks of malloc in this process.
private struct BlockMemory: HeapReach.Memory {
    let heap: OpaquePointer

    func block(at word: UInt64) -> HeapReach.Block? {
        var block = plimsoll_census_block()
        guard plimsoll_census_find_block(heap, word, &block) else { return nil }
        return HeapReach.Block(address: block.address, size: Int(block.size), used: Int(block.used))
    }

    func forEachWord(of block: HeapReach.Block, _ body: (UInt64) -> Void) {
        withUnsafeTemporaryAllocation(of: UInt64.self, capacity: 1024) { words in
            var done = 0
            while done + 8 <= block.used {
                let size = min(words.count * 8, (block.used - done) & ~7)
                guard plimsoll_census_read(heap, block.address + UInt64(done), words.baseAddress, size) else { return }
                for index in 0..<size / 8 { body(words[index]) }
                done += size
            }
        }
    }
}

private typealias Way = HeapCensus.Way

extension HeapCensus.Way {
    fileprivate var number: plimsoll_census_way {
        switch self {
        case .chunks: PLIMSOLL_CENSUS_CHUNKS
        case .pages: PLIMSOLL_CENSUS_PAGES
        case .scan: PLIMSOLL_CENSUS_SCAN
        }
    }
}

extension HeapCensus {
    /// Asks jemalloc for the bytes in use, of which a scan sees the named ones.
    fileprivate mutating func countUnnamed() {
        var sample = plimsoll_heap_sample()
        guard plimsoll_heap_sample(&sample), sample.allocated >= namedBytes else { return }
        unnamedBytes = sample.allocated - namedBytes
    }
}

extension HeapCensus.Row {
    fileprivate mutating func add(_ type: plimsoll_census_type) {
        count += Int(type.count)
        bytes += Int(type.bytes)
        ownedBlocks += Int(type.owned_blocks)
        ownedBytes += Int(type.owned_bytes)
        guard UInt32(type.shape) != PLIMSOLL_CENSUS_PLAIN.rawValue else { return }
        let stride = Int(type.stride) + Int(type.value_stride)
        usedBytes = (usedBytes ?? 0) &+ Int(truncatingIfNeeded: type.used) &* stride
        capacityBytes = (capacityBytes ?? 0) &+ Int(truncatingIfNeeded: type.capacity) &* stride
    }
}
