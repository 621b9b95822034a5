import CAllocationCounter
import Foundation
import Plimsoll
import PlimsollLinux
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import PlimsollHeap
@testable import PlimsollService

/// Censuses of the heap over HTTP, one alone and two at a time.
@Suite(.timeLimit(.minutes(5))) struct HeapPageTests {
    private let pages = AdminPages(ResourceManager(source: ScriptedPressureSource()))

    @Test(.needs(allocation_count_works(), "a sanitizer is in front of malloc"))
    func `the page answers a census with the number of types asked for`() async throws {
        let answer = await pages.answer(.heap, .init(query: ["rows": "3"], fetchSite: "same-origin"))
        #expect(answer.status == 200 && answer.contentType == "application/json", "\(answer)")
        let status = try JSONDecoder().decode(HeapStatus.self, from: Data(answer.body.utf8))
        #expect(status.census.rows.count == 3 && status.types > 100 && status.growth == nil)
    }

    @Test(.needs(allocation_count_works() && VolatileMemory.isSupported, "a sanitizer is in front of malloc, or no memory can be volatile"))
    func `volatile memory is no part of the heap bytes that purgeables declare`() async throws {
        let manager = ResourceManager(source: ScriptedPressureSource()), cache = VolatileCache<Int, [UInt8]>("tiles")
        for key in 0..<8 { cache.insert([UInt8](repeating: 1, count: 1 << 20), forKey: key) }
        let registrations = [
            manager.register(cache), manager.register("pages", byteCount: { 3 << 20 }, release: { _ in 0 }),
        ]
        let answer = await AdminPages(manager).answer(.heap, .init(query: ["rows": "1"]))
        let status = try JSONDecoder().decode(HeapStatus.self, from: Data(answer.body.utf8))
        // Segments that are still written are not volatile.
        #expect(status.declaredBytes >= 3 << 20 && status.declaredBytes < 8 << 20, "\(status.declaredBytes)")
        withExtendedLifetime(registrations) {}
    }

    @Test func `a page of another site gets no census, and an invalid number of types is refused`() async {
        for site in ["cross-site", "same-site", ""] {
            #expect(await pages.answer(.heap, .init(fetchSite: site)).status == 403, "\(site)")
        }
        for rows in ["0", "1001", "all", ""] {
            #expect(await pages.answer(.heap, .init(query: ["rows": rows])).status == 400, "\(rows)")
        }
    }

    @Test func `a request for the headers alone is refused, as only a census would tell them`() async {
        let answer = await pages.answer(.heap, .init(method: "HEAD", fetchSite: "same-origin"))
        #expect(answer.status == 405 && answer.headers["allow"] == "GET", "\(answer)")
    }

    @Test func `a second census at the same time is refused, and the next is not`() throws {
        let second = Mutex<AdminRefusal?>(nil), history = Mutex<HeapHistory?>(nil)
        let nothing = HeapCensus(
            way: .chunks, rows: [], namedBytes: 0, ownedBytes: 0, unnamedBytes: 0, freeBytes: 0, lostBytes: 0, processorSeconds: 0)
        let first = HeapHistory(time: .machine) {
            // Another client asks for a census meanwhile.
            let other = history.withLock { $0 }
            do throws(AdminRefusal) { _ = try other?.take(rows: 1, declared: 0) } catch { second.withLock { $0 = error } }
            return nothing
        }
        history.withLock { $0 = first }
        #expect(try first.take(rows: 1, declared: 5).declaredBytes == 5)
        #expect(second.withLock { $0?.code } == .busy)
        history.withLock { $0 = nil }
        #expect(try first.take(rows: 1, declared: 0).growth == [])
    }
}
