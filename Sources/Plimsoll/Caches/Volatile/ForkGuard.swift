import CPlimsollMemory
import Synchronization

/// Tells whether this is still the process in which an object was made.
///
/// A page that a forked child sees as zeros (`MADV_WIPEONFORK`, Linux 4.14) holds a number. An object remembers the
/// number and compares.
package enum ForkGuard {
    // Unchecked by the compiler, but set once before any thread reads the pointer, and atomic behind the pointer.
    nonisolated(unsafe) private static let page: UnsafeMutablePointer<Atomic<UInt64>>? = {
        var start: UnsafeMutableRawPointer?
        let bytes = plimsoll_page_size()
        guard plimsoll_map(bytes, bytes, &start) == 0, let start, plimsoll_open(start, bytes) == 0 else { return nil }
        return start.assumingMemoryBound(to: Atomic<UInt64>.self)
    }()

    /// The number of this process. Relaxed, as below: the number publishes nothing else.
    package static var process: UInt64 {
        guard let page else { return 1 }
        let number = page.pointee.load(ordering: .relaxed)
        if number != 0 { return number }
        // A random number, because process ids are used again.
        let (exchanged, original) = page.pointee.compareExchange(
            expected: 0, desired: UInt64.random(in: 1...(.max)), ordering: .relaxed)
        return exchanged ? page.pointee.load(ordering: .relaxed) : original
    }

    /// Returns true if this is the process with that number.
    package static func isProcess(_ number: UInt64) -> Bool {
        page.map { $0.pointee.load(ordering: .relaxed) == number } ?? true
    }
}
