import Plimsoll
import PlimsollDemos

/// A volatile cache filled with page-sized values, for measuring a purge.
final class FilledCache {
    private let cache: VolatileCache<Int, [UInt8]>
    let size: ByteCount

    init(_ size: ByteCount, hugePages: Bool) {
        self.size = size
        cache = VolatileCache("filled", allowsHugePages: hugePages)
        let value = [UInt8](repeating: 1, count: 4096)
        var key = 0
        while cache.heldBytes < size.bytes {
            for _ in 0..<256 {
                cache.insert(value, forKey: key)
                key += 1
            }
        }
    }

    func giveBack() throws {
        let held = cache.heldBytes, released = cache.release(.max)
        guard released == held, cache.count == 0 else {
            throw Failure.failed("only \(ByteCount(released)) of \(ByteCount(held)) were released")
        }
    }
}
