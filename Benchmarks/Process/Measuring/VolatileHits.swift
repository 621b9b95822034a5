import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollTesting

/// Compares hits in a cache whose segments are mostly sealed with copies of the same bytes from plain pages.
///
/// Both see the same keys in the same random order, in alternating rounds, and use the same hash. The baseline's
/// table finds each place with one probe: keys are chosen so that no two share an entry, which no real cache can do.
struct VolatileHits {
    struct Result {
        /// Processor time of one hit, the median of all rounds.
        var nanoseconds: Double
        /// Ratio to the baseline's time, the median of the rounds' ratios.
        var ratio: Double
    }

    /// Minimum of operations in a round, so that a round is no shorter than a disturbance.
    private static let leastOperations = 300_000

    private let valueSize: Int
    private let cache = VolatileCache<UInt64, [UInt8]>("hits")
    private let pages: PlainPages
    private let order: [UInt64]

    init(valueSize: Int, payload: Int) {
        self.valueSize = valueSize
        pages = PlainPages(valueSize: valueSize, count: payload / valueSize)
        var value = [UInt8](repeating: 0, count: valueSize)
        for (number, key) in pages.keys.enumerated() {
            value[0] = UInt8(truncatingIfNeeded: number)
            cache.insert(value, forKey: key)
            pages.put(value, number)
        }
        var random = SeededGenerator(seed: 1)
        order = pages.keys.shuffled(using: &random)
    }

    func measure(rounds: Int) -> (copying: Result, lending: Result) {
        precondition(
            copies() == plainCopies() && lends() == plainLends(), "the cache and its yardstick hold different bytes")
        var times: [[Double]] = [[], [], [], []]
        let passes = max(1, Self.leastOperations / order.count)
        for _ in 0..<rounds {
            for (index, body) in [copies, plainCopies, lends, plainLends].enumerated() {
                let before = SteadyClock.thread
                for _ in 0..<passes { _ = body() }
                times[index].append((SteadyClock.thread - before).inSeconds / Double(order.count * passes) * 1e9)
            }
        }
        return (result(times[0], times[1]), result(times[2], times[3]))
    }

    private func result(_ times: [Double], _ yardstick: [Double]) -> Result {
        Result(nanoseconds: median(times) ?? .nan, ratio: median(zip(times, yardstick).map { $0 / $1 }) ?? .nan)
    }

    // Each returns a sum of the bytes read, so that the optimizer removes no read and both sides can be compared.

    private func copies() -> Int { order.reduce(0) { $0 + Int(cache.value(forKey: $1)?[0] ?? 0) } }

    private func plainCopies() -> Int { order.reduce(0) { $0 + Int(pages.value(forKey: $1)[0]) } }

    private func lends() -> Int {
        order.reduce(0) { $0 + Int(cache.withBytes(forKey: $1) { $0.unsafeLoad(as: UInt8.self) } ?? 0) }
    }

    private func plainLends() -> Int {
        let buffer = UnsafeMutableRawPointer.allocate(byteCount: valueSize, alignment: 16)
        defer { buffer.deallocate() }
        return order.reduce(0) {
            pages.copy($1, to: buffer)
            return $0 + Int(buffer.load(as: UInt8.self))
        }
    }
}

/// Values in pages, found by the hash of the key with one table lookup.
final class PlainPages {
    private static let page = 4096

    let keys: [UInt64]
    private let valueSize: Int
    private let valuesInPage: Int
    private let memory: UnsafeMutableRawBufferPointer
    private var pages: [UnsafeMutableRawPointer] = []
    /// Number of a page and an offset in that page, for each hash modulo the table's size.
    private var places: [UInt32]
    private let mask: Int

    init(valueSize: Int, count: Int) {
        self.valueSize = valueSize
        valuesInPage = Self.page / valueSize
        var size = 1
        while size < count + count / 2 { size *= 2 }
        mask = size - 1
        places = [UInt32](repeating: .max, count: size)
        var keys: [UInt64] = []
        var key: UInt64 = 0
        while keys.count < count {
            let entry = key.hashValue & mask
            if places[entry] == .max {
                places[entry] = UInt32(keys.count / valuesInPage * Self.page + keys.count % valuesInPage * valueSize)
                keys.append(key)
            }
            key += 1
        }
        self.keys = keys
        let pageCount = (count + valuesInPage - 1) / valuesInPage
        memory = .allocate(byteCount: pageCount * Self.page, alignment: 2 << 20)
        // Huge pages from the 33rd mebibyte on, as in the cache.
        let small = min(memory.count, 32 << 20)
        madvise(memory.baseAddress! + small, memory.count - small, MADV_HUGEPAGE)
        pages = (0..<pageCount).map { memory.baseAddress! + $0 * Self.page }
    }

    deinit { memory.deallocate() }

    func put(_ value: [UInt8], _ number: Int) {
        value.withUnsafeBytes {
            pages[number / valuesInPage].advanced(by: number % valuesInPage * valueSize).copyMemory(
                from: $0.baseAddress!, byteCount: valueSize)
        }
    }

    @inline(__always)
    private func address(_ key: UInt64) -> UnsafeMutableRawPointer {
        let place = Int(places[key.hashValue & mask])
        return pages[place / Self.page] + place % Self.page
    }

    func value(forKey key: UInt64) -> [UInt8] {
        let address = address(key)
        return [UInt8](unsafeUninitializedCapacity: valueSize) { buffer, count in
            memcpy(buffer.baseAddress!, address, valueSize)
            count = valueSize
        }
    }

    func copy(_ key: UInt64, to buffer: UnsafeMutableRawPointer) { memcpy(buffer, address(key), valueSize) }
}
