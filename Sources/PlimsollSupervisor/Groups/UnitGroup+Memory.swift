import CPlimsollSupervisor
import Glibc
package import Plimsoll
import PlimsollLinux

/// A unit's memory: what it has, how much it may have, and taking some of it.
extension UnitGroup {
    /// What the kernel charges it, page cache included: `memory.current`, or `memory.usage_in_bytes` on version 1. Without a memory controller, what its
    /// processes have with shared pages divided among those that share them: resident sets would count them once for each (T34). `nil` if neither can be read.
    package var charge: ByteCount? {
        guard let memory else { return ProcessMemoryUse.proportional(processes) }
        return memory.number(isVersion1 ? "memory.usage_in_bytes" : "memory.current").map { ByteCount($0) }
    }

    /// What of it is in swap; `nil` where swap is not counted by group.
    package var swapped: ByteCount? {
        let bytes = isVersion1 ? memory?.number("memory.stat", key: "total_swap") : memory?.number("memory.swap.current")
        return bytes.map { ByteCount($0) }
    }

    /// Of the charge, what reclaim can have without swap: page cache and lazily freed pages, which are on the lists of files (`memory.stat`).
    package var reclaimable: ByteCount {
        guard let memory, case .success(let text) = GroupText.read("memory.stat", in: memory.descriptor) else { return .zero }
        return ByteCount(MemoryStat(text.span, isVersion1: isVersion1)?.reclaimable ?? 0)
    }

    /// Whether the memory controller is on version 1.
    var isVersion1: Bool { memory?.hierarchy == .memory }

    // MARK: Limits

    /// What is kept for it when others want memory, what it may never exceed, and beyond what it is slowed down instead; `nil` for nothing of the kind.
    ///
    /// - Returns: a sentence for each that can't be set here.
    @discardableResult
    package func setLimits(request: ByteCount?, limit: ByteCount?, high: ByteCount? = nil) throws(GroupError) -> [String] {
        func missing(_ what: String, _ why: String) -> [String] { ["\(what) of \(name) is not set: \(why)"] }
        let isAsked = request != nil || limit != nil || high != nil
        guard let memory else { return isAsked ? missing("memory", "its groups have no memory controller") : [] }
        if isVersion1 {
            try memory.write(limit.map { "\($0.bytes)" } ?? "-1", to: "memory.limit_in_bytes", for: .limit)
            // Its soft limit is the reverse: who is above it is reclaimed first, who is below has no protection (mm/memcontrol-v1.c).
            return (request == nil ? [] : missing("the memory request", "cgroup version 1 has no memory.low"))
                + (high == nil ? [] : missing("the brake", "cgroup version 1 has no memory.high"))
        }
        try memory.write("\(request?.bytes ?? 0)", to: "memory.low", for: .limit)
        try memory.write(high.map { "\($0.bytes)" } ?? "max", to: "memory.high", for: .limit)
        try memory.write(limit.map { "\($0.bytes)" } ?? "max", to: "memory.max", for: .limit)
        return []
    }

    /// What of its memory is kept for it when others want some, where that can be said.
    func protect(_ request: ByteCount?) throws(GroupError) {
        guard let memory, !isVersion1 else { return }
        try memory.write("\(request?.bytes ?? 0)", to: "memory.low", for: .limit)
    }

    /// Its limits, to be had again; without a brake.
    func ownLimits(_ limit: ByteCount?) -> [LiftedLimit] {
        guard let memory else { return [] }
        if isVersion1 { return [LiftedLimit(memory, "memory.limit_in_bytes", limit.map { "\($0.bytes)" } ?? "-1")] }
        return [LiftedLimit(memory, "memory.high", "max"), LiftedLimit(memory, "memory.max", limit.map { "\($0.bytes)" } ?? "max")]
    }

    // MARK: Pushing out

    /// What came of pushing out.
    package struct PushedOut: Sendable, Hashable {
        /// How much less is charged.
        package var bytes: ByteCount
        /// Whether the kernel found as much as was asked for.
        package var isComplete: Bool
    }

    /// Has the kernel take `bytes` of it: page cache, and the rest where there is swap. May take seconds then; call it where that does no harm.
    ///
    /// By `memory.reclaim` (Linux 5.19). On version 1 by lowering the limit to what shall remain, for as long as it takes, which is harmless only while the
    /// unit stands still: running, it could meet that limit and be killed by it.
    ///
    /// - Parameter guardian: takes the lowered limit back if this process is killed meanwhile.
    package func pushOut(_ bytes: ByteCount, guardian: Guard? = nil) throws(GroupError) -> PushedOut {
        guard let memory, let before = charge else { throw GroupError(.pushOut, path, .missing("its groups have no memory controller")) }
        guard bytes > .zero else { return PushedOut(bytes: .zero, isComplete: true) }
        let isComplete =
            if isVersion1 { try lowerLimit(of: memory, to: max(.zero, before - bytes), guardian) } else { try reclaim(bytes, from: memory) }
        return PushedOut(bytes: max(.zero, before - (charge ?? before)), isComplete: isComplete)
    }

    private func reclaim(_ bytes: ByteCount, from memory: GroupDirectory) throws(GroupError) -> Bool {
        guard memory.has("memory.reclaim") else { throw GroupError(.pushOut, path, .missing("the kernel has no memory.reclaim (Linux 5.19)")) }
        do throws(GroupError) {
            try memory.write("\(bytes.bytes)", to: "memory.reclaim", for: .pushOut)
            return true
        } catch {
            // Some of it, but not all (Documentation/admin-guide/cgroup-v2.rst); interrupted by a signal, likewise.
            if error.reason == .kernel(EAGAIN) || error.reason == .kernel(EINTR) { return false }
            throw error
        }
    }

    private func lowerLimit(of memory: GroupDirectory, to remainder: ByteCount, _ guardian: Guard?) throws(GroupError) -> Bool {
        guard isFrozen else { throw GroupError(.pushOut, path, .runs) }
        let file = "memory.limit_in_bytes"
        guard let before = memory.number(file) else { throw GroupError(.pushOut, "\(memory.path)/\(file)", .kernel(EIO)) }
        try guardian?.watch([LiftedLimit(memory, file, "\(before)")], .pushingOut, of: self)
        var isComplete = true
        do throws(GroupError) { try memory.write("\(remainder.bytes)", to: file, for: .pushOut) } catch {
            // No more was to be had. Any other error leaves the limit as it was.
            guard error.reason == .kernel(EBUSY) || error.reason == .kernel(EINTR) else {
                guardian?.forget(.pushingOut, of: self)
                throw error
            }
            isComplete = false
        }
        // What stood there is at most what fits: version 1 says 0x7ffffffffffff000 for none, and takes that back.
        do throws(GroupError) { try memory.write("\(before)", to: file, for: .pushOut) } catch {
            // Once more; after that the guard has it to put back, when this process ends.
            try memory.write("\(before)", to: file, for: .pushOut)
        }
        guardian?.forget(.pushingOut, of: self)
        return isComplete
    }
}

/// What processes have, where no group counts it.
enum ProcessMemoryUse {
    /// Their proportional set sizes (`Pss` in `/proc/PID/smaps_rollup`, Linux 4.14), added up; `nil` if none can be read.
    static func proportional(_ processes: Set<Int32>) -> ByteCount? {
        var sum: ByteCount?
        for pid in processes {
            guard case .success(let text) = GroupText.read("/proc/\(pid)/smaps_rollup"), let share = proportional(text) else { continue }
            sum = (sum ?? .zero) + share
        }
        return sum
    }

    /// The `Pss:` line, in kibibytes.
    package static func proportional(_ text: [UInt8]) -> ByteCount? {
        for line in text.split(separator: UInt8(ascii: "\n")) where line.starts(with: "Pss:".utf8) {
            return GroupText.number(line.dropFirst(4)).map { .kibibytes($0) }
        }
        return nil
    }
}
