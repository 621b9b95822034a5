import CPlimsollSupervisor
import Glibc
package import Plimsoll
import PlimsollLinux

/// A unit's memory: charge, limits and reclaim.
extension UnitGroup {
    /// Memory that the kernel charges to the unit, page cache included: `memory.current`, or `memory.usage_in_bytes`
    /// on version 1. Without a memory controller, the sum of the processes' proportional set sizes. Resident set
    /// sizes would count a shared page once for each process (T34). `nil` if neither can be read.
    package var charge: ByteCount? {
        guard let memory else { return ProcessMemoryUse.proportional(processes) }
        return memory.number(isVersion1 ? "memory.usage_in_bytes" : "memory.current").map { ByteCount($0) }
    }

    /// The part of the charge that is in swap; `nil` where swap is not counted by group.
    package var swapped: ByteCount? {
        let bytes =
            isVersion1 ? memory?.number("memory.stat", key: "total_swap") : memory?.number("memory.swap.current")
        return bytes.map { ByteCount($0) }
    }

    /// The part of the charge that the kernel can reclaim without swap: page cache and lazily freed pages, which are
    /// on the file lists (`memory.stat`).
    package var reclaimable: ByteCount {
        guard let memory, case .success(let text) = GroupText.read("memory.stat", in: memory.descriptor) else {
            return .zero
        }
        return ByteCount(MemoryStat(text.span, isVersion1: isVersion1)?.reclaimable ?? 0)
    }

    /// True if the memory controller is on version 1.
    var isVersion1: Bool { memory?.hierarchy == .memory }

    // MARK: Limits

    /// Sets memory.low, memory.max and memory.high; `nil` for none.
    ///
    /// - Returns: a sentence for each value that can't be set here.
    @discardableResult
    package func setLimits(request: ByteCount?, limit: ByteCount?, high: ByteCount? = nil) throws(GroupError)
        -> [String]
    {
        func missing(_ what: String, _ why: String) -> [String] { ["cannot set \(what) of \(name): \(why)"] }
        let isAsked = request != nil || limit != nil || high != nil
        guard let memory else { return isAsked ? missing("memory", "its groups have no memory controller") : [] }
        if isVersion1 {
            try memory.write(limit.map { "\($0.bytes)" } ?? "-1", to: "memory.limit_in_bytes", for: .limit)
            // The soft limit of version 1 is no substitute: groups above it are reclaimed first, but groups below it
            // are not protected (mm/memcontrol-v1.c).
            return (request == nil ? [] : missing("the memory request", "cgroup version 1 has no memory.low"))
                + (high == nil ? [] : missing("the throttle (memory.high)", "cgroup version 1 has no memory.high"))
        }
        try memory.write("\(request?.bytes ?? 0)", to: "memory.low", for: .limit)
        try memory.write(high.map { "\($0.bytes)" } ?? "max", to: "memory.high", for: .limit)
        try memory.write(limit.map { "\($0.bytes)" } ?? "max", to: "memory.max", for: .limit)
        return []
    }

    /// Sets memory.low where it exists: the memory protected from reclaim.
    func protect(_ request: ByteCount?) throws(GroupError) {
        guard let memory, !isVersion1 else { return }
        try memory.write("\(request?.bytes ?? 0)", to: "memory.low", for: .limit)
    }

    /// Returns the entries that restore the unit's limits, without memory.high throttling.
    func ownLimits(_ limit: ByteCount?) -> [LiftedLimit] {
        guard let memory else { return [] }
        if isVersion1 { return [LiftedLimit(memory, "memory.limit_in_bytes", limit.map { "\($0.bytes)" } ?? "-1")] }
        return [
            LiftedLimit(memory, "memory.high", "max"),
            LiftedLimit(memory, "memory.max", limit.map { "\($0.bytes)" } ?? "max"),
        ]
    }
}

/// Memory of processes that no group accounts for.
enum ProcessMemoryUse {
    /// Returns the sum of the proportional set sizes (`Pss` in `/proc/PID/smaps_rollup`, Linux 4.14); `nil` if none
    /// can be read.
    static func proportional(_ processes: Set<Int32>) -> ByteCount? {
        var sum: ByteCount?
        for pid in processes {
            guard case .success(let text) = GroupText.read("/proc/\(pid)/smaps_rollup"), let share = proportional(text)
            else { continue }
            sum = (sum ?? .zero) + share
        }
        return sum
    }

    /// Returns the `Pss:` line, which is in kibibytes.
    package static func proportional(_ text: [UInt8]) -> ByteCount? {
        for line in text.split(separator: UInt8(ascii: "\n")) where line.starts(with: "Pss:".utf8) {
            return GroupText.number(line.dropFirst(4)).map { .kibibytes($0) }
        }
        return nil
    }
}

/// A temporary limit of a group, and the text that lifts the limit.
package struct LiftedLimit: Sendable {
    package var directory: GroupDirectory
    package var file: String
    package var text: String
    /// The value that was set. `lift` leaves any other value alone, as another process must have set it.
    package var present: String

    package init(_ directory: GroupDirectory, _ file: String, _ text: String, present: String = "") {
        (self.directory, self.file, self.text, self.present) = (directory, file, text, present)
    }

    /// Returns true if a line of the file begins with `value`.
    static func isSet(_ value: String, in line: some StringProtocol) -> Bool {
        line == value || line.hasPrefix(value + " ")
    }

    /// Lifts the limit, unless another value has been set since. A group that is gone has no limits.
    package func lift() {
        guard case .success(let now) = GroupText.read(file, in: directory.descriptor) else { return }
        let lines = String(decoding: now, as: UTF8.self).split(separator: "\n")
        guard present.isEmpty || lines.contains(where: { Self.isSet(present, in: $0) }) else { return }
        try? directory.write(text, to: file, for: .throttle)
    }
}
