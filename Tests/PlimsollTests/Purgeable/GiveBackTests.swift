import Glibc
import Synchronization
import Testing

@testable import Plimsoll

/// The requests to the allocator to give pages back, and the reported signal. `make allocators` runs the matrix of real
/// allocators.
@Suite struct GiveBackTests {
    /// A heap that notes each request.
    final class Heap: GiveBack {
        let canGiveBack: Bool
        let expectedStall: Duration
        private let hole: ByteCount?
        private let depths = Mutex<[GiveBackDepth]>([])

        init(canGiveBack: Bool = true, stall: Duration = .milliseconds(900), hole: ByteCount? = nil) {
            self.canGiveBack = canGiveBack
            expectedStall = stall
            self.hole = hole
        }

        var asked: [GiveBackDepth] { depths.withLock { $0 } }
        func keepLess() {}
        func giveBack(_ depth: GiveBackDepth) { depths.withLock { $0.append(depth) } }
        func meanHole() -> ByteCount? { hole }
    }

    /// Asks the allocator once after a pass. The clock advances by a millisecond at each reading.
    @discardableResult
    static func pass(_ giveBack: inout HeapGiveBack, released: ByteCount, asked: ByteCount, fell: ByteCount = .zero) -> Duration {
        let clock = Mutex(Duration.zero)
        let time = Timekeeper {
            clock.withLock {
                $0 += .milliseconds(1)
                return $0
            }
        }
        var resident = ByteCount.gibibytes(1) + fell
        return giveBack.giveBack(after: released, of: asked, time: time) {
            resident -= fell
            return resident
        }
    }

    @Test func `K28 an allocator that stops other threads is asked where the yield is worth the stop`() {
        let heap = Heap()
        var giveBack = HeapGiveBack(heap)
        #expect(Self.pass(&giveBack, released: .mebibytes(64), asked: .mebibytes(64)) == .milliseconds(1))
        #expect(heap.asked == [.full])
        #expect(Self.pass(&giveBack, released: .kibibytes(100), asked: .kibibytes(100)) == .zero, "too little for a walk over the heap")
        #expect(heap.asked == [.full, .light])
        Self.pass(&giveBack, released: .zero, asked: .mebibytes(64))
        #expect(heap.asked == [.full, .light, .full], "holders had nothing: what the heap holds back is the last thing to give")
    }

    @Test func `a heap with small holes is walked once, and a heap with large holes after each pass`() {
        let small = Heap(hole: .bytes(64)), large = Heap(hole: .kibibytes(64))
        for (heap, times) in [(small, 1), (large, 3)] {
            var giveBack = HeapGiveBack(heap)
            for _ in 0..<3 { Self.pass(&giveBack, released: .mebibytes(64), asked: .mebibytes(64)) }
            #expect(heap.asked.count == times)
        }
        let useful = Heap(hole: .bytes(64))
        var giveBack = HeapGiveBack(useful)
        for _ in 0..<3 { Self.pass(&giveBack, released: .mebibytes(64), asked: .mebibytes(64), fell: .mebibytes(60)) }
        #expect(useful.asked.count == 3, "a walk that freed memory is repeated")
    }

    @Test(arguments: [(mebibytes: 9, times: 1), (10, 3), (15, 3)])
    func `a walk that frees a tenth of the released bytes is repeated`(mebibytes: Int, times: Int) {
        let heap = Heap(hole: .bytes(64))
        var giveBack = HeapGiveBack(heap)
        for _ in 0..<3 { Self.pass(&giveBack, released: .mebibytes(100), asked: .mebibytes(100), fell: .mebibytes(mebibytes)) }
        #expect(heap.asked.count == times)
    }

    @Test func `the mean size of holes is known of glibc's heap, and of no other`() {
        // Frees the middle block, which leaves a hole between two blocks.
        let blocks = (0..<3).map { _ in malloc(64 << 10) }
        defer { for index in [0, 2] { free(blocks[index]) } }
        free(blocks[1])
        let hole = HeapAllocator.current.meanHole()
        if HeapAllocator.current.kind == .glibc { #expect(hole.map { $0 > .zero } == true) } else { #expect(hole == nil) }
    }

    @Test func `an allocator that stops no thread is asked after each pass, and no wait is reported`() {
        let heap = Heap(stall: .milliseconds(10), hole: .bytes(64))
        var giveBack = HeapGiveBack(heap)
        for _ in 0..<3 { #expect(Self.pass(&giveBack, released: .mebibytes(64), asked: .mebibytes(64)) == .zero) }
        Self.pass(&giveBack, released: .zero, asked: .zero)
        #expect(heap.asked == [.full, .full, .full, .light])
    }

    @Test func `an allocator that cannot give pages back is not asked`() {
        let heap = Heap(canGiveBack: false)
        var giveBack = HeapGiveBack(heap)
        Self.pass(&giveBack, released: .mebibytes(64), asked: .mebibytes(64))
        #expect(heap.asked.isEmpty)
    }

    /// An allocator that was found, true if giving back is live, and texts that the signal's detail and remedy contain.
    typealias Said = (allocator: HeapAllocator, isLive: Bool, detail: String, remedy: String?)

    static let said: [Said] = [
        (HeapAllocator(.glibc, .owned, version: "2.36"), true, "glibc 2.36 owns malloc", nil),
        (HeapAllocator(.jemalloc, .owned, version: "5.3.0"), true, "jemalloc 5.3.0 owns malloc", nil),
        (HeapAllocator(.jemalloc, .split), false, "split heap: malloc is jemalloc, libc's own is glibc", "link libjemalloc.so instead"),
        (HeapAllocator(.jemalloc, .notOwned, file: "/srv/service"), false, "does not own malloc; the symbol is in /srv/service", nil),
        (HeapAllocator(.mimalloc, .owned), false, "keeps freed pages", "MIMALLOC_PURGE_DELAY=0"),
        (HeapAllocator(.mimalloc, .owned, returnsAtOnce: true), true, "return freed pages at once", nil),
        (HeapAllocator(.tcmalloc, .owned), false, "none is requested", nil),
        (HeapAllocator(.unknown, .notOwned, file: "/lib/libother.so"), false, "not the C library's; the symbol is in /lib/libother.so", nil),
    ]

    @Test(arguments: said)
    func `the signal names malloc's owner and the remedy`(said: Said) {
        let signal = said.allocator.signal
        #expect(signal.name == "allocator" && signal.isLive == said.isLive)
        #expect(signal.detail.contains(said.detail), "\(signal.detail)")
        #expect((signal.remedy == nil) == (said.remedy == nil))
        #expect(signal.remedy?.contains(said.remedy ?? "") != false, "\(signal.remedy ?? "")")
    }

    @Test func `this process's allocator is found, and a manager reports the signal`() {
        let allocator = HeapAllocator.current
        #expect(ResourceManager(source: UnreadableSource()).capabilities["allocator"] == allocator.signal)
        // The test bundle has a counting malloc of its own, or that of a sanitizer, so that no pages are given back.
        #expect(allocator.ownership == .notOwned && !allocator.canGiveBack)
        allocator.giveBack(.full)
        #expect(allocator.sample() == nil)
    }

    private struct UnreadableSource: PressureSource {
        var capabilities: Capabilities { Capabilities(support: .inert, signals: []) }
        var rings: Bool { false }
        func read(at: Duration) throws(PressureSourceError) -> PressureReading { throw PressureSourceError("nothing") }
        func wait(atMost limit: Duration) {}
        func wake() {}
        func footprint() -> Footprint { Footprint() }
    }
}
