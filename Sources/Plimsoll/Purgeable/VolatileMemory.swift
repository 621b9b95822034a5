import CPlimsollMemory

/// Memory that the kernel may take at any instant, without notice and before it would kill any process: pages marked
/// with `MADV_FREE`.
package enum VolatileMemory {
    /// Availability of volatile memory in this process.
    package enum Support: Sendable, Hashable {
        /// Marked pages stay until memory is short.
        case live
        /// Not available, for that reason. Volatile caches and buffers use ordinary memory instead.
        case dead(String)
    }

    /// Result of a test made once: a page is marked and read back.
    package static let support: Support = probe()

    /// True if pages can be made volatile here.
    package static var isSupported: Bool { support == .live }

    /// The line `volatile memory` of the capabilities.
    package static var signal: Capabilities.Signal {
        switch support {
        case .live:
            .init(
                "volatile memory", isLive: true,
                "MADV_FREE: pages that the kernel reclaims when memory is short, before the OOM killer runs")
        case .dead(let reason):
            .init(
                "volatile memory", isLive: false,
                "\(reason); volatile caches use ordinary memory and release it on request",
                remedy: "run on Linux 4.14 or newer, without mlockall")
        }
    }

    // MARK: Probing

    /// Number of attempts. A kernel may have good reasons to take the page between mark and read, but three times in a
    /// row means always.
    private static let attempts = 3

    private static func probe() -> Support {
        for _ in 1..<attempts {
            let answer = attempt()
            if answer != .droppedAtOnce { return answer }
        }
        return attempt()
    }

    private static func attempt() -> Support {
        let size = plimsoll_page_size()
        var address: UnsafeMutableRawPointer?
        let mapped = plimsoll_map(size, size, &address)
        guard mapped == 0, let address else { return .dead("cannot map a page: errno \(mapped)") }
        defer { _ = plimsoll_unmap(address, size) }
        let opened = plimsoll_open(address, size)
        guard opened == 0 else {
            return .dead(
                "the kernel cannot wipe pages in a forked child (MADV_WIPEONFORK, since Linux 4.14): errno \(opened)")
        }
        address.storeBytes(of: 1, as: UInt8.self)
        return verdict(
            marked: plimsoll_mark_volatile(address, size), isKept: { plimsoll_peek(address) == 1 },
            isLocked: { plimsoll_drop(address, size) != 0 })
    }

    /// Returns the conclusion from the kernel's answers.
    ///
    /// - Parameters:
    ///   - marked: 0, or the errno of marking.
    ///   - isKept: returns true if the page still holds the byte written.
    ///   - isLocked: returns true if even dropping the page is refused. `MADV_DONTNEED` is as old as Linux itself, but
    ///     not for locked pages.
    static func verdict(marked: Int32, isKept: () -> Bool, isLocked: () -> Bool) -> Support {
        if marked != 0 {
            return isLocked()
                ? .dead("this process locks its memory (mlockall)")
                : .dead("the kernel has no MADV_FREE (since Linux 4.5): errno \(marked)")
        }
        return isKept() ? .live : .droppedAtOnce
    }
}

extension VolatileMemory.Support {
    /// The result for `madvise_free` in Linux 4.5 to 4.11 (mm/madvise.c): without swap it does what `MADV_DONTNEED`
    /// does.
    static let droppedAtOnce = Self.dead("the kernel reclaims marked pages at once (Linux 4.5 to 4.11 without swap)")
}
