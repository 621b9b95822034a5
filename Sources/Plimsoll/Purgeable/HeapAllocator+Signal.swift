extension HeapAllocator {
    /// The signal `"allocator"` of a manager's capabilities: tells what can be given back, and the remedy if
    /// nothing can.
    public var signal: Capabilities.Signal {
        func signal(_ isLive: Bool, _ detail: String, remedy: String? = nil) -> Capabilities.Signal {
            .init("allocator", isLive: isLive, detail, remedy: remedy)
        }
        let home = file.map { ": it is in \($0)" } ?? ""
        switch (kind, ownership) {
        case (_, .split):
            return signal(
                false,
                "split heap: malloc is \(kind), libc's own is glibc; this process crashes when it frees what strdup or getline returned",
                remedy: "link libjemalloc.so instead of libjemalloc.a")
        case (.unknown, _):
            return signal(false, "malloc is not the C library's\(home)")
        case (_, .notOwned):
            return signal(false, "\(title) is loaded but does not own malloc\(home)")
        case (.mimalloc, .owned):
            return returnsAtOnce
                ? signal(true, "\(title) owns malloc and was told to return freed pages at once")
                : signal(
                    false, "\(title) owns malloc, keeps freed pages, and returns next to none when asked",
                    remedy:
                        "start the process with MIMALLOC_PURGE_DELAY=0 (MIMALLOC_DECOMMIT_DELAY=0 before version 2.1)")
        case (.tcmalloc, .owned):
            return signal(
                false,
                "\(title) owns malloc; asking it to release stops other threads' allocations, so it is left alone")
        case (.glibc, .owned), (.jemalloc, .owned):
            return signal(true, "\(title) owns malloc")
        }
    }

    /// Name and version.
    private var title: String { version.map { "\(kind) \($0)" } ?? "\(kind)" }
}
