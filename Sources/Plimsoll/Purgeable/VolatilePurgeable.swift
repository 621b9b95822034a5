/// A purgeable whose pages the kernel may reclaim at any instant, without asking.
///
/// Such pages count as available, not as used. The kernel reclaims them inside the allocator's own page fault
/// before any process is killed (`MADV_FREE`, mm/vmscan.c). A manager therefore asks these purgeables first, but
/// relies on the others to cover a shortfall.
package protocol VolatilePurgeable: MeteredPurgeable {
    /// Bytes in pages that the kernel may reclaim now, as far as known without reading the pages.
    var volatileBytes: Int { get }

    /// Attaches the meter on which the purgeable declares every page mapped and released. Called once, at
    /// registration. If `take` returns false, no idle memory is left: the purgeable evicts from its own pages or
    /// does without.
    func attach(volatile meter: ChargeMeter)

    /// Checks which pages the kernel has reclaimed since the last call, and forgets their contents. Cheap if none
    /// was reclaimed.
    ///
    /// - Returns: the bytes found reclaimed.
    func noticeDrops() -> Int

    /// Releases memory that has been of no use for long. Called every few seconds.
    func giveBackIdle()
}
