#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc

/// The share of a group's reclaimable slab that reclaim can free, learnt from the results of reclaim.
///
/// `slab_reclaimable` counts the pages of dentries, inodes and other objects with a shrinker. Objects in use hold their
/// pages: all of the slab may be reclaimable, or next to nothing. The kernel keeps no count of the difference for a
/// group. So the share begins at a half and moves with two observations at the limit:
///
/// - One reclaim pass frees 15 to 20 % of a slab without objects in use, and less in proportion to objects held.
///   Measured on Linux 6.1 with ten million negative dentries: 69 falls between two readings 250 ms apart, median 9 %,
///   largest 42 %. So a fall between two readings, of which the first was at the limit, raises the share. The share
///   moves half-way to six times the freed part of the slab.
/// - Memory that is neither page cache nor slab may grow at the limit. Reclaim then takes from page cache and slab in
///   proportion to their sizes (`shrink_slab` in mm/shrinker.c scans as large a part of each). A slab that gave less
///   than half of the due part is held, and the share falls.
struct SlabReclaim: Sendable {
    /// The share of a slab that nothing is known about.
    static let prior = 0.5
    /// A group counts as at the limit if usage is below the limit by less than this share of the limit.
    private static let closeness = 1.0 / 32
    /// A usual pass frees at most a sixth of a wholly reclaimable slab.
    private static let partsOfPass = 6.0
    /// Growth is judged once growth has taken this part of the page cache, or as much as this part of the slab.
    private static let stride = (file: 0.2, slab: 1.0 / 64)
    /// Slab that should have been freed and was not lowers the share. The factor of the fall is e to the power of this
    /// many times that part of the slab.
    private static let fade = 8.0
    /// With less page cache than this share of the limit nothing is learnt: reclaim ends there before the slab.
    private static let leastFile = 1.0 / 512

    /// The share, in `0...1`.
    private(set) var share = prior
    /// The largest slab on which the share was learnt. Bytes beyond are unknown again and count with the prior share.
    private var learntOn = 0
    private var previous: (slab: Int, isAtLimit: Bool)?
    /// The growth being judged: the group's numbers when the growth began, and the least slab since.
    private var growth: (taken: Int, slab: Int, file: Int, least: Int)?

    /// Returns the bytes of a slab that reclaim can free.
    func reclaimable(of slab: Int) -> Int {
        let known = min(slab, learntOn)
        return Int(Double(known) * share + Double(slab - known) * Self.prior)
    }

    /// Learns from `stat`, read when `usage` bytes were charged under `limit`.
    mutating func learn(_ stat: MemoryStat, usage: Int, limit: Int) {
        let slab = stat.slabReclaimable, isAtLimit = limit - usage < Int(Double(limit) * Self.closeness)
        defer { previous = (slab, isAtLimit) }
        guard slab > 0 else {
            growth = nil
            return
        }
        if let previous, previous.isAtLimit, slab < previous.slab {
            let target = min(1, Self.partsOfPass * Double(previous.slab - slab) / Double(previous.slab))
            if target > share {
                keep(learntOn: previous.slab)
                share += (target - share) / 2
            }
        }
        guard isAtLimit else { return }
        let file = stat.cleanFile, taken = usage - file - slab
        guard var growth, taken >= growth.taken else {
            growth = (taken, slab, file, slab)
            return
        }
        growth.least = min(growth.least, slab)
        self.growth = growth
        let grown = Double(taken - growth.taken), size = Double(growth.slab)
        let isFileSignificant =
            Double(growth.file) >= Double(limit) * Self.leastFile && grown * 2 >= Double(growth.file - file)
        let ofFile = isFileSignificant ? Double(growth.file - file) / Double(growth.file) : 0
        guard grown >= size * Self.stride.slab || ofFile >= Self.stride.file else { return }
        self.growth = (taken, slab, file, slab)
        let due = max(ofFile, grown / (size + Double(growth.file))), fell = Double(growth.slab - growth.least) / size
        guard fell < due / 2 else { return }
        keep(learntOn: growth.slab)
        share *= exp(-Self.fade * (due - fell))
    }

    /// Averages the share learnt on less slab than `size` with the prior for the rest, so that raising `learntOn`
    /// changes no estimate.
    private mutating func keep(learntOn size: Int) {
        guard size > learntOn else { return }
        share = Double(reclaimable(of: size)) / Double(size)
        learntOn = size
    }
}
#endif
