/// Decides when to trim the heap while memory is not short, because unused memory in the heap limits the caches.
///
/// glibc keeps up to 64 MiB of freed memory at the top of each arena once large buffers have come and gone
/// (`M_TRIM_THRESHOLD` follows `M_MMAP_THRESHOLD`, up to 32 MiB), and whole pages between live blocks for ever. Only a
/// walk that takes as long as the trim finds out how much. So the trim is tried, and retried at growing intervals while
/// the result is nothing.
struct IdleTrim: Sendable {
    private var pause = Self.leastPause
    private var next = Duration.zero
    /// Time from which another trim keeps to `costShare`.
    private var affordable = Duration.zero
    private var pinnedThen: ByteCount?

    /// Pause between two trims that each brought something.
    static let leastPause = Duration.seconds(2)
    /// Pause between two trims that brought nothing, after some of them.
    static let mostPause = Duration.seconds(128)
    /// Minimum result of a trim that was worth the walk, and minimum growth that is worth another trim.
    static let leastGain = ByteCount.mebibytes(4)
    /// Share of the time that trims may take: `malloc` in other threads may wait meanwhile.
    static let costShare = 0.01

    /// Returns true if a trim is due now; the trim then counts as begun until `finished`.
    ///
    /// - Parameters:
    ///   - pinned: memory that cannot be reclaimed.
    ///   - isHeldBack: true if caches would take more if there were room.
    mutating func isDue(at now: Duration, pinned: ByteCount, isHeldBack: Bool) -> Bool {
        guard isHeldBack else { return false }
        // Memory that has grown since may have been freed since.
        if let pinnedThen, pinned - pinnedThen >= Self.leastGain, pause > Self.leastPause {
            (pause, next) = (Self.leastPause, min(next, affordable))
        }
        guard now >= next else { return false }
        (next, pinnedThen) = (now + pause, pinned)
        return true
    }

    /// Records a trim that reduced resident memory by `fall`.
    mutating func finished(fall: ByteCount, took: Duration, at now: Duration) {
        pause = fall >= Self.leastGain ? Self.leastPause : min(Self.mostPause, pause * 2)
        if let pinnedThen { self.pinnedThen = pinnedThen - max(.zero, fall) }
        affordable = now + took / Self.costShare
        next = max(now + pause, affordable)
    }
}
