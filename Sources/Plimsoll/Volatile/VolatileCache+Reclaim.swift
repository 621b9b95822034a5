import CPlimsollMemory

extension VolatileCache {
    /// Has the kernel take pages of sealed segments now, as it would for want of memory: those of which `isTaken` says so, asked with the number of
    /// the segment and of the page in it. For tests and the torture.
    package func reclaim(where isTaken: (_ segment: Int, _ page: Int) -> Bool) {
        store.withLog(()) { log in
            for (number, segment) in log.segments.enumerated() {
                guard let segment, segment.isSealed else { continue }
                for page in 0..<segment.frontier / PageLayout.page where isTaken(number, page) {
                    let offset = page * PageLayout.page
                    _ = plimsoll_reclaim(segment.base + offset, PageLayout.page)
                    // One that just now stands in another processor's list of pages to be sorted in escapes reclaim (mm/swap.c), but not this.
                    if segment.isThere(offset) { _ = plimsoll_drop(segment.base + offset, PageLayout.page) }
                }
            }
        }
    }
}
