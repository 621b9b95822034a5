import CPlimsollMemory

extension VolatileCache {
    /// Has the kernel take pages of sealed segments now, as it would for want of memory: those of which `isTaken` says so, asked with the number of
    /// the segment and of the page in it. For tests and the torture.
    package func reclaim(where isTaken: (_ segment: Int, _ page: Int) -> Bool) {
        store.withLog(()) { log in
            for (number, segment) in log.segments.enumerated() {
                guard let segment, segment.isSealed else { continue }
                for page in 0..<segment.frontier / PageLayout.page where isTaken(number, page) {
                    _ = plimsoll_reclaim(segment.base + page * PageLayout.page, PageLayout.page)
                }
            }
        }
    }
}
