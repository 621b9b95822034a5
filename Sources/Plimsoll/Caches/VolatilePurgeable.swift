/// A holder whose pages the kernel itself may take, at any instant, without asking.
///
/// Such pages count as available, not as used: the kernel drops them inside the allocator's own page fault before it would kill anything
/// (`MADV_FREE`, mm/vmscan.c). A manager therefore asks these holders first, but counts on the others for a shortfall.
public protocol VolatilePurgeable: Purgeable {
    /// Bytes in pages that the kernel may take now, as far as is known without looking at them.
    var volatileBytes: Int { get }

    /// Called once when it is registered, with the meter on which it declares every page it maps and gives back. When `take` says no, there is
    /// no idle memory left: it makes room among its own, or does without.
    func attach(volatile meter: ChargeMeter)

    /// Looks which of its pages the kernel has taken since the last call and forgets what was in them. Cheap where nothing was taken.
    ///
    /// - Returns: bytes found taken.
    func noticeDrops() -> Int

    /// Gives back what has earned nothing for long. Called every few seconds.
    func giveBackIdle()
}
