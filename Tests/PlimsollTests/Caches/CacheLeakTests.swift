import CAllocationCounter
import Foundation
import TestSupport
import Testing

@testable import Plimsoll

/// Memory that caches leave behind. The test runs in a separate process, since other tests allocate too.
@Suite(.timeLimit(.minutes(5)), .needsLinux, .needs(allocation_count_works(), "a sanitizer is in front of malloc")) struct CacheLeakTests {
    @Test func `deallocated caches leave no memory behind`() async throws {
        let result = await #expect(processExitsWith: .success, observing: [\.standardOutputContent]) {
            func resident() throws -> Int {
                let text = try String(contentsOfFile: "/proc/self/statm", encoding: .utf8)
                // Without the pages of files, which the kernel may take and bring back at any time.
                let pages = text.split(separator: " ").map { Int($0) ?? 0 }
                return (pages[1] - pages[2]) * Int(sysconf(Int32(_SC_PAGESIZE)))
            }
            // Each entry has a cost, a tag and an expiry, so that all blocks of the tables are used.
            func live(_ round: Int) {
                let cache = PurgeableCache<Int, Int>("leak", limit: .mebibytes(1), shardCount: 2) { _, _ in 16 }
                for key in 0..<300 { cache.insert(key, forKey: key, tags: ["even", "odd"], timeToLive: .seconds(60)) }
                for key in 0..<100 { cache.removeValue(forKey: key) }
                if round % 2 == 0 { cache.purge(tag: "even") }
            }
            for round in 0..<50 { live(round) }
            let before = try resident()
            for round in 0..<150 { live(round) }
            print("grown", try resident() - before)
        }
        let said = String(decoding: result?.standardOutputContent ?? [], as: UTF8.self)
        let grown = said.split(separator: "\n").first { $0.hasPrefix("grown ") }.flatMap { Int($0.dropFirst(6)) }
        let bytes = try #require(grown, "\(said)")
        #expect(bytes < 512 << 10, "more after 150 caches")
    }
}
