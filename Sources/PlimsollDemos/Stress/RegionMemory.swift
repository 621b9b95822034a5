import CPlimsollMemory
import Glibc
package import Plimsoll

/// Pages straight from the kernel, all written to: the baseline for giving memory back.
package final class RegionMemory {
    private let start: UnsafeMutableRawPointer
    private let size: ByteCount
    private var isMapped = true

    package init(_ size: ByteCount) throws {
        var address: UnsafeMutableRawPointer?
        try Self.check(plimsoll_map(size.bytes, plimsoll_page_size(), &address), "mapping \(size)")
        guard let address else { throw Failure.failed("mapping \(size) gave no address") }
        start = address
        self.size = size
        try Self.check(plimsoll_open(start, size.bytes), "opening \(size)")
        for offset in stride(from: 0, to: size.bytes, by: plimsoll_page_size()) {
            start.storeBytes(of: 1, toByteOffset: offset, as: UInt8.self)
        }
    }

    /// Unmaps everything in one call, addresses included.
    package func unmap() throws {
        isMapped = false
        try Self.check(plimsoll_unmap(start, size.bytes), "unmapping \(size)")
    }

    deinit { if isMapped { _ = plimsoll_unmap(start, size.bytes) } }

    private static func check(_ error: Int32, _ what: String) throws {
        if error != 0 { throw Failure.failed("\(what) failed: \(String(cString: strerror(error)))") }
    }
}
