/// Decides when the heap is worth a trim while memory is not short: caches are held back by memory that the heap keeps and nothing uses.
///
/// glibc keeps up to 64 MiB of freed memory at the top of each arena once large buffers have come and gone (`M_TRIM_THRESHOLD` follows `M_MMAP_THRESHOLD`, up to 32 MiB),
/// and whole pages between live blocks for ever. How much it is can only be found out by a walk that takes as long as the trim. So it is tried, and again at
/// growing distances for as long as it brings nothing.
struct IdleTrim: Sendable {
    private var pause = Self.leastPause
    private var next = Duration.zero
    private var pinnedThen: ByteCount?

    /// Between two trims that each brought something.
    static let leastPause = Duration.seconds(2)
    /// Between two that brought nothing, after some of them.
    static let mostPause = Duration.seconds(128)
    /// Less than this was not worth the walk, nor is so much growth worth another look.
    static let leastGain = ByteCount.mebibytes(4)
    /// Share of the time that trims may take: others' `malloc` may wait meanwhile.
    static let costShare = 0.01

    /// Whether to trim now; if so, the trim counts as begun until `finished`.
    ///
    /// - Parameters:
    ///   - pinned: what cannot be reclaimed.
    ///   - isHeldBack: whether caches would take more if there were room.
    mutating func isDue(at now: Duration, pinned: ByteCount, isHeldBack: Bool) -> Bool {
        guard isHeldBack else { return false }
        // What has grown since may have been freed since.
        if let pinnedThen, pinned - pinnedThen >= Self.leastGain, pause > Self.leastPause { (pause, next) = (Self.leastPause, min(next, now)) }
        guard now >= next else { return false }
        (next, pinnedThen) = (now + pause, pinned)
        return true
    }

    /// A trim has ended that made `fall` less resident.
    mutating func finished(fall: ByteCount, took: Duration, at now: Duration) {
        pause = fall >= Self.leastGain ? Self.leastPause : min(Self.mostPause, pause * 2)
        if let pinnedThen { self.pinnedThen = pinnedThen - max(.zero, fall) }
        next = now + max(pause, took / Self.costShare)
    }
}
