import Foundation
import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll

@Suite struct MissCurveTests {
    static let curve = MissCurve(requests: 100, points: [.init(bytes: 40, misses: 20), .init(bytes: 10, misses: 60)])

    @Test(arguments: [(-5, 100.0), (0, 100), (5, 80), (10, 60), (25, 40), (40, 20), (41, 20), (Int.max, 20)] as [(Int, Double)])
    func `misses lie on lines between the points`(bytes: Int, misses: Double) {
        #expect(Self.curve.misses(at: bytes) == misses)
    }

    @Test func `misses that rise with the size are noise`() {
        let curve = MissCurve(
            requests: 100, points: [.init(bytes: 10, misses: 150), .init(bytes: 20, misses: 30), .init(bytes: 30, misses: 50)])
        #expect(curve.points.map(\.misses) == [100, 30, 30])
    }

    @Test func `numbers that are not finite count as zero`() {
        let curve = MissCurve(
            requests: .nan, points: [.init(bytes: 10, misses: .infinity), .init(bytes: -3, misses: 1), .init(bytes: 0, misses: 1)])
        #expect(curve.requests == 0 && curve.points == [.init(bytes: 10, misses: 0)] && curve.misses(at: 5) == 0)
    }

    @Test(
        arguments: [
            // On the slope between 10 and 40 bytes all misses are scaled, at most by two.
            (30, 25, [45, 15]), (100, 25, [120, 40]), (5, 25, [30, 10]), (0, 25, [60, 20]), (30, 40, [90, 30]),
            // The fall from no memory to 10 bytes is a cliff: between the points next to the cliff the misses become a
            // point.
            (70, 5, [70, 60, 20]), (60, 5, [60, 60, 20]), (30, 5, [30, 30, 10]),
            // A cache says nothing about larger sizes, and a cache without memory says nothing at all.
            (30, 41, [60, 20]), (30, 0, [60, 20]),
        ] as [(Double, Int, [Double])])
    func `a curve is corrected by the cache's own misses`(misses: Double, bytes: Int, expected: [Double]) {
        // With a fall of 35 of 100 between the points the slope would be a cliff.
        var curve = MissCurve(requests: 200, points: [.init(bytes: 10, misses: 60), .init(bytes: 40, misses: 20)])
        if bytes == 5 { curve = MissCurve(requests: 100, points: curve.points) }
        let corrected = curve.through(misses: misses, at: bytes, parts: [0.5, 0.5])
        #expect(corrected.requests == curve.requests && corrected.points.count == expected.count)
        for (point, expected) in zip(corrected.points, expected) { #expect(abs(point.misses - expected) < 1e-9, "\(corrected)") }
    }

    @Test func `a larger sample is corrected less`() {
        let curve = MissCurve(requests: 200, points: [.init(bytes: 10, misses: 60), .init(bytes: 40, misses: 20)])
        #expect(curve.through(misses: 30, at: 40, parts: [0.4, 0.1]).points.map(\.misses) == [67.5, 30])
        #expect(curve.through(misses: 90, at: 10, parts: [0.4, 0.1]).points.map(\.misses) == [90, 30])
        #expect(curve.through(misses: 90, at: 10, parts: [0, 0]).points.map(\.misses) == [90, 30])
    }

    @Test func `a curve without points has a miss for each request`() {
        #expect(MissCurve(requests: 7, points: []).misses(at: 1 << 40) == 7)
    }
}

@Suite struct CliffTests {
    /// The sample of a loop: all requests miss with 15,000 bytes, and none with 20,000.
    private let sampled = MissCurve(
        requests: 1000, points: [.init(bytes: 15_000, misses: 1000), .init(bytes: 20_000, misses: 0), .init(bytes: 40_000, misses: 0)])
    private var cliff = Cliff()

    /// Notes a round of 10,000 requests in a cache with entries of one byte.
    private mutating func note(_ ratio: Double, at bytes: Int, times: Int = 1) {
        for _ in 0..<times { cliff.note(ratio, of: 10_000, at: bytes, entries: Double(bytes), sampled) }
    }

    @Test mutating func `misses at a size are misses at each smaller size, and hits are hits at each larger size`() {
        note(1, at: 17_000, times: 4)
        note(0, at: 18_000)
        let curve = cliff.applied(to: sampled)
        #expect([1000, 15_000, 17_000].allSatisfy { curve.misses(at: $0) == 1000 } && curve.misses(at: 18_000) == 0, "\(curve)")
        #expect(curve.misses(at: 17_500) == 500 && curve.misses(at: 19_000) == 0)
    }

    @Test mutating func `misses move no cliff while a cache has just grown, and move the cliff at once after the cache has shrunk`() {
        note(1, at: 17_000, times: 3)
        #expect(cliff.applied(to: sampled) == sampled, "the loop may come again")
        note(1, at: 17_000)
        #expect(cliff.applied(to: sampled).misses(at: 17_000) == 1000)
        cliff = Cliff()
        note(0, at: 18_000, times: 4)
        note(1, at: 17_500)
        #expect(cliff.applied(to: sampled).misses(at: 17_500) == 1000)
    }

    @Test mutating func `a cliff moves with the loop`() {
        note(0, at: 18_000, times: 4)
        note(1, at: 18_000, times: 1)
        #expect(cliff.applied(to: sampled).misses(at: 18_000) == 1000, "the loop has become longer")
        note(0, at: 17_000)
        #expect(cliff.applied(to: sampled).misses(at: 17_000) == 0, "and shorter")
    }

    @Test mutating func `a side is forgotten after fifty rounds without news`() {
        note(0, at: 18_000)
        note(0, at: 18_500, times: 49)
        #expect(cliff.applied(to: sampled).misses(at: 18_000) == 0)
        note(0, at: 19_000)
        #expect(cliff.applied(to: sampled).misses(at: 18_000) > 0)
    }

    @Test mutating func `slopes, and misses in the middle of a cliff, change no curve`() {
        note(0.5, at: 17_500, times: 10)
        note(1, at: 30_000, times: 10)
        note(0, at: 10_000, times: 10)
        #expect(cliff.applied(to: sampled) == sampled)
        let slope = MissCurve(requests: 1000, points: (1...10).map { .init(bytes: $0 * 1000, misses: 1000 - 90 * Double($0)) })
        for _ in 0..<10 { cliff.note(1, of: 10_000, at: 5500, entries: 5500, slope) }
        #expect(cliff.applied(to: slope) == slope)
        cliff.note(.nan, of: 0, at: 0, entries: .infinity, MissCurve(requests: 0, points: []))
        #expect(cliff.applied(to: slope) == slope)
    }

    @Test mutating func `an estimated end is raised where the cache has missed`() {
        let step = MissCurve(requests: 1000, points: [.init(bytes: 7500, misses: 350), .init(bytes: 10_000, misses: 0)])
        func note(_ ratio: Double, at bytes: Int, times: Int, _ cliff: inout Cliff) {
            for _ in 0..<times { cliff.note(ratio, of: 10_000, at: bytes, entries: Double(bytes), step, end: 10_000) }
        }
        #expect(cliff.end(8500, entries: 100) == 8500)
        note(0.3, at: 8500, times: 3, &cliff)
        #expect(cliff.end(8500, entries: 100) == 9350 && cliff.end(8501, entries: 100) == 8501)
        #expect(cliff.applied(to: step).misses(at: 8500) == 300)
        // Both sides stay known as long as the cache rests at a size where all keys fit.
        note(0, at: 9000, times: 200, &cliff)
        #expect(cliff.end(8500, entries: 100) == 9000)
        #expect(cliff.applied(to: step).misses(at: 9000) == 0 && cliff.applied(to: step).misses(at: 8500) == 300)
        // A fall of a third says nothing if the sample has no end.
        cliff = Cliff()
        for _ in 0..<10 { cliff.note(0.2, of: 10_000, at: 8500, entries: 8500, step) }
        #expect(cliff.end(8500, entries: 100) == 8500 && cliff.applied(to: step) == step)
    }
}
