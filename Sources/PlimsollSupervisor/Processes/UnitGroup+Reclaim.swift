import Glibc
package import Plimsoll

extension UnitGroup {
    /// Makes the kernel reclaim `bytes` from the unit: page cache first, and the rest if there is swap. With swap
    /// this may take seconds; call it on a thread that may block.
    ///
    /// Uses `memory.reclaim` (Linux 5.19). On version 1, lowers the limit to the remainder for the time of the
    /// reclaim. That is safe only while the unit is frozen: a running unit could hit the limit and be killed.
    ///
    /// - Parameter guardian: restores the lowered limit if this process is killed during the reclaim.
    package func reclaim(_ bytes: ByteCount, guardian: Guard? = nil) throws(GroupError) {
        guard let memory, let before = charge else {
            throw GroupError(.reclaim, path, .missing("its groups have no memory controller"))
        }
        guard bytes > .zero else { return }
        if isVersion1 { return try lowerLimit(of: memory, to: max(.zero, before - bytes), guardian) }
        guard memory.has("memory.reclaim") else {
            throw GroupError(.reclaim, path, .missing("the kernel has no memory.reclaim (Linux 5.19)"))
        }
        do throws(GroupError) { try memory.write("\(bytes.bytes)", to: "memory.reclaim", for: .reclaim) } catch {
            // The kernel reclaimed less than requested (Documentation/admin-guide/cgroup-v2.rst), or was interrupted
            // by a signal.
            guard error.reason == .kernel(EAGAIN) || error.reason == .kernel(EINTR) else { throw error }
        }
    }

    private func lowerLimit(
        of memory: GroupDirectory, to remainder: ByteCount, _ guardian: Guard?
    ) throws(GroupError) {
        guard isFrozen else { throw GroupError(.reclaim, path, .runs) }
        let file = "memory.limit_in_bytes"
        guard let before = memory.number(file) else {
            throw GroupError(.reclaim, "\(memory.path)/\(file)", .kernel(EIO))
        }
        try guardian?.watch([LiftedLimit(memory, file, "\(before)")], .reclaiming, of: self)
        do throws(GroupError) { try memory.write("\(remainder.bytes)", to: file, for: .reclaim) } catch {
            // No more could be reclaimed. Any other error leaves the limit unchanged.
            guard error.reason == .kernel(EBUSY) || error.reason == .kernel(EINTR) else {
                guardian?.forget(.reclaiming, of: self)
                throw error
            }
        }
        // The old value can be written back as read: version 1 reports 0x7ffffffffffff000 for no limit, and accepts
        // that value.
        do throws(GroupError) { try memory.write("\(before)", to: file, for: .reclaim) } catch {
            // Retry once. If that fails too, the guard restores the limit when this process ends.
            try memory.write("\(before)", to: file, for: .reclaim)
        }
        guardian?.forget(.reclaiming, of: self)
    }
}
