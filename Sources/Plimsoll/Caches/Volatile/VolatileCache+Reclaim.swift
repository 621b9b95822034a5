import CPlimsollMemory

extension VolatileCache {
    /// Makes the kernel reclaim pages of sealed segments now, as under memory pressure. Takes the pages for which
    /// `isTaken` returns true, given the numbers of the segment and of the page in that segment. For tests and the
    /// torture.
    package func reclaim(where isTaken: (_ segment: Int, _ page: Int) -> Bool) {
        store.withLog(()) { log in
            for (number, segment) in log.segments.enumerated() {
                guard let segment, segment.isSealed else { continue }
                for page in 0..<segment.frontier / PageLayout.page where isTaken(number, page) {
                    let offset = page * PageLayout.page
                    _ = plimsoll_reclaim(segment.base + offset, PageLayout.page)
                    // A page in another processor's batch of pages to be sorted into the lists escapes reclaim
                    // (mm/swap.c), but not this call.
                    if segment.isThere(offset) { _ = plimsoll_drop(segment.base + offset, PageLayout.page) }
                }
            }
        }
    }
}
