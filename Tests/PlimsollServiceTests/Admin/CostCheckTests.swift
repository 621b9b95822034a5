import CAllocationCounter
import Foundation
import Plimsoll
import PlimsollHeap
import TestSupport
import Testing

@testable import PlimsollService

/// Declared costs of caches, beside the bytes that their entries refer to.
@Suite(.timeLimit(.minutes(5)), .needs(allocation_count_works(), "a sanitizer is in front of malloc"))
struct CostCheckTests {
    private final class Catalogue: Sendable { let pages = (0..<2000).map { [UInt8](repeating: 1, count: 1000 + $0) } }
    private final class Page: Sendable {
        let catalogue: Catalogue, text: String, parts: [[Int]]
        init(_ catalogue: Catalogue, _ number: Int) {
            self.catalogue = catalogue
            text = String(repeating: "a page ", count: 200) + "\(number)"
            parts = (0..<5).map { Array(repeating: $0, count: 100) }
        }
    }

    private func filled<Value>(_ cost: Int, _ make: (Int) -> Value) -> PurgeableCache<Int, Value> {
        let cache = PurgeableCache<Int, Value>("pages", cost: { _, _ in cost })
        for number in 0..<500 { cache.insert(make(number), forKey: number) }
        return cache
    }

    @Test func `a cache that counts the bytes of its values has a factor of about 1`() throws {
        let check = try #require(CostCheck.of(filled(10_000) { _ in [UInt8](repeating: 1, count: 10_000) }))
        #expect(check.name == "pages" && check.entries == 64 && check.declaredBytes == 640_000)
        #expect((1...1.02).contains(check.factor) && !check.isFar, "\(check.factor)")
        // Foundation allocates a quarter more than requested.
        let data = try #require(CostCheck.of(filled(10_000) { _ in Data(repeating: 1, count: 10_000) }))
        #expect((1...1.3).contains(data.factor), "\(data.factor)")
    }

    @Test func `a cache with a wrong cost is reported with the factor`() throws {
        let little = try #require(CostCheck.of(filled(100) { _ in [UInt8](repeating: 1, count: 10_000) }))
        #expect((99...102).contains(little.factor) && little.isFar, "\(little.factor)")
        let much = try #require(CostCheck.of(filled(100_000) { _ in [UInt8](repeating: 1, count: 10_000) }))
        #expect((0.09...0.11).contains(much.factor) && much.isFar, "\(much.factor)")
    }

    @Test func `memory that one value alone refers to is counted, and memory that all values share is not`() throws {
        let catalogue = Catalogue(), cache = filled(6000) { Page(catalogue, $0) }
        let check = try #require(CostCheck.of(cache))
        // 1,400 bytes of text, five arrays of 800 bytes, and their headers.
        #expect((0.9...1.1).contains(check.factor), "\(check.factor)")
        let optional = try #require(CostCheck.of(filled(6000) { $0 % 2 == 0 ? Page(catalogue, $0) as Page? : nil }))
        #expect((0.4...0.6).contains(optional.factor), "\(optional.factor)")
    }

    @Test func `keys count as well`() throws {
        let cache = PurgeableCache<String, Int>("names", cost: { _, _ in 16 })
        for number in 0..<500 { cache.insert(number, forKey: String(repeating: "name", count: 250) + "\(number)") }
        let check = try #require(CostCheck.of(cache))
        #expect((60...70).contains(check.factor), "\(check.factor)")
    }

    @Test func `too few entries, or entries that refer to too much, give no answer`() {
        let cache = PurgeableCache<Int, [UInt8]>("few", cost: { _, value in value.count })
        for number in 0..<3 { cache.insert([1, 2, 3], forKey: number) }
        #expect(CostCheck.of(cache) == nil)
        cache.insert([1, 2, 3], forKey: 3)
        #expect(CostCheck.of(cache)?.entries == 4)
        #expect(CostCheck.of(filled(1) { _ in Array(repeating: 1, count: 100_000) }) == nil)
        #expect(CostCheck.of(filled(1) { _ in [UInt8](repeating: 1, count: 1_000_000) }) != nil)
    }
}
