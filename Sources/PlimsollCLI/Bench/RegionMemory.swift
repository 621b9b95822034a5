import CPlimsollMemory
import Glibc
import Plimsoll

/// Memory straight from the kernel in pieces of 2 MiB, all pages written to: what a region store holds.
final class RegionMemory {
    private let start: UnsafeMutableRawPointer
    private let size: ByteCount
    private var isMapped = true

    /// A huge page of x86-64 and of arm64 with pages of 4 KiB, and a segment.
    static let piece = 2 << 20

    /// - Parameter size: a multiple of 2 MiB.
    init(_ size: ByteCount, hugePages: Bool) throws {
        var address: UnsafeMutableRawPointer?
        try Self.check(plimsoll_map(size.bytes, Self.piece, &address), "mapping \(size)")
        guard let address else { throw Failure.failed("mapping \(size) gave no address") }
        start = address
        self.size = size
        for piece in pieces {
            try Self.check(plimsoll_open(piece, Self.piece), "opening 2 MiB")
            if hugePages { try Self.check(plimsoll_allow_huge_pages(piece, Self.piece), "allowing huge pages") }
        }
        let page = plimsoll_page_size()
        for offset in stride(from: 0, to: size.bytes, by: page) { start.storeBytes(of: 1, toByteOffset: offset, as: UInt8.self) }
    }

    private var pieces: some Sequence<UnsafeMutableRawPointer> {
        stride(from: 0, to: size.bytes, by: Self.piece).lazy.map { [start] in start + $0 }
    }

    /// Gives every piece back; the addresses stay.
    func giveBack() throws { for piece in pieces { try Self.check(plimsoll_blank(piece, Self.piece), "giving 2 MiB back") } }

    /// Gives everything back in one call, addresses and all.
    func unmap() throws {
        isMapped = false
        try Self.check(plimsoll_unmap(start, size.bytes), "unmapping \(size)")
    }

    deinit { if isMapped { _ = plimsoll_unmap(start, size.bytes) } }

    private static func check(_ error: Int32, _ what: String) throws {
        if error != 0 { throw Failure.failed("\(what) failed: \(String(cString: strerror(error)))") }
    }
}
