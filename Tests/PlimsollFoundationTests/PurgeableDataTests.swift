import Foundation
import Plimsoll
import PlimsollFoundation
import PlimsollTesting
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(5))) struct PurgeableDataTests {
    @Test(arguments: [0, 1, 14, 100, 5000, 1_000_000]) func `bytes stored come back unchanged, as Data and in place`(size: Int) {
        let bytes = Data((0..<size).map { UInt8(truncatingIfNeeded: $0 * 7) })
        let data = PurgeableData(data: bytes)
        data.endContentAccess()
        #expect(data.length == size && data.data == bytes && !data.isContentDiscarded())
        #expect(data.withData { $0 } == bytes && data.withData { $0.count } == size)
        #expect(data.beginContentAccess())
        data.withBytes { bytes in if bytes.byteCount > 0 { bytes.storeBytes(of: 99, as: UInt8.self) } }
        data.endContentAccess()
        #expect(data.data?.first == (size > 0 ? 99 : nil) && data.data?.dropFirst() == bytes.dropFirst())
        // A slice does not begin at zero.
        #expect(PurgeableData(data: bytes.dropFirst(size / 2)).data == Data(bytes.dropFirst(size / 2)))
    }

    @Test func `purgeable data starts accessed, and the content can go when no access is left`() {
        let data = PurgeableData(length: 50_000)
        data.discardContentIfPossible()
        #expect(!data.isContentDiscarded() && data.beginContentAccess())
        data.endContentAccess()
        data.discardContentIfPossible()
        #expect(!data.isContentDiscarded() && !data.buffer.isVolatile)
        data.endContentAccess()
        data.discardContentIfPossible()
        #expect(data.isContentDiscarded() && !data.beginContentAccess() && data.data == nil)
        #expect(data.withData { $0.count } == nil && data.withBytes { $0.byteCount } == nil && data.length == 50_000)
    }

    @Test(.needs(VolatileMemory.isSupported, "no memory can be volatile here"))
    func `the kernel reclaims purgeable data between accesses only, and never in part`() {
        let bytes = Data(repeating: 5, count: 1_000_000), data = PurgeableData(data: bytes)
        data.buffer.reclaim()
        #expect(data.data == bytes)
        data.endContentAccess()
        #expect(data.buffer.isVolatile && data.beginContentAccess())
        data.buffer.reclaim()
        #expect(data.data == bytes && !data.isContentDiscarded())
        data.endContentAccess()
        // More pages than the kernel can miss because they are still in another processor's list of pages to be sorted
        // in (mm/swap.c).
        data.buffer.reclaim(pages: 7..<107)
        #expect(data.isContentDiscarded() && data.data == nil)
        #expect(data.buffer.noticeDrops() > .zero, "a manager is still notified")
    }

    @Test(.needs(VolatileMemory.isSupported, "no memory can be volatile here"))
    func `the kernel reclaims no content while a reference to Data in place exists`() {
        let bytes = Data(repeating: 5, count: 300_000), data = PurgeableData(data: bytes)
        data.endContentAccess()
        var kept = data.withData { $0 }
        let slice = kept?.dropFirst(100)
        kept = nil
        #expect(!data.buffer.isVolatile)
        data.buffer.reclaim()
        data.discardContentIfPossible()
        #expect(slice == bytes.dropFirst(100) && !data.isContentDiscarded())
        // A write to a copy makes a copy of the bytes while another reference exists.
        let first = data.withData { whole in
            var own = whole
            own[0] = 9
            return own[0]
        }
        #expect(first == 9 && data.data == bytes)
        withExtendedLifetime(slice) {}
    }

    @Test func `Data in place outlives the source object, and access ends with the last reference`() throws {
        var data: PurgeableData? = PurgeableData(data: Data(repeating: 5, count: 300_000))
        let buffer = try #require(data?.buffer)
        data?.endContentAccess()
        var kept = data?.withData { $0 }
        data = nil
        #expect(kept?.reduce(0) { $0 + Int($1) } == 1_500_000 && buffer.heldBytes == .zero)
        kept = nil
        #expect(buffer.heldBytes == 300_000)
    }

    @Test func `errors pass through, and accesses end all the same`() {
        struct Problem: Error {}
        let data = PurgeableData(length: 10_000)
        data.endContentAccess()
        #expect(throws: Problem.self) { try data.withData { (_: Data) throws(Problem) -> Int in throw Problem() } }
        #expect(throws: Problem.self) { try data.withBytes { (_: inout MutableRawSpan) throws(Problem) -> Int in throw Problem() } }
        #expect(data.buffer.heldBytes == 10_000)
    }

    @Test(.needsLinux) func `a manager counts purgeable data, and releases that data first`() {
        let manager = ResourceManager(source: ScriptedPressureSource())
        let data = PurgeableData(length: 1 << 20, name: "frame")
        let registration = manager.register(data.buffer)
        #expect((manager.release() as ActionReport).releasedVolatile == .zero && !data.isContentDiscarded(), "the data is accessed")
        data.endContentAccess()
        #expect((manager.release() as ActionReport).releasedVolatile == .mebibytes(1) && data.isContentDiscarded())
        registration.cancel()
    }

    @Test func `ending more accesses than have begun stops the process`() async {
        await #expect(processExitsWith: .failure) {
            let data = PurgeableData(length: 1)
            data.endContentAccess()
            data.endContentAccess()
        }
    }
}
