import Plimsoll

/// A unit's part in processor and disk (C36, C37).
extension UnitGroup {
    /// Sets how much it gets when others want the same, by its role.
    ///
    /// - Returns: a sentence for each that can't be set here.
    @discardableResult
    package func setWeights(for role: ServiceUnit.Role) throws(GroupError) -> [String] {
        var skipped: [String] = []
        let weight = role.weight
        if let cpu, cpu.has("cpu.weight") {
            try cpu.write("\(weight)", to: "cpu.weight", for: .weigh)
        } else if let cpu {
            // 1024 is to version 1 what 100 is to version 2, and 2 its least.
            try cpu.write("\(max(2, weight * 1024 / 100))", to: "cpu.shares", for: .weigh)
        } else {
            skipped.append("the processor weight of \(name) is not set: its groups have no cpu controller")
        }
        if let disk, let file = ["io.weight", "blkio.bfq.weight", "blkio.weight"].first(where: { disk.has($0) }) {
            try disk.write(file == "io.weight" ? "default \(weight)" : "\(max(10, weight))", to: file, for: .weigh)
        } else {
            skipped.append("the disk weight of \(name) is not set: there is no io controller, or the disk's scheduler has no weights")
        }
        return skipped
    }

    /// The weights of a role and what is kept of its memory, to be had again.
    func ownWeights(for role: ServiceUnit.Role, _ request: ByteCount?) -> [LiftedLimit] {
        let weight = role.weight
        var limits: [LiftedLimit] = []
        if let cpu, cpu.has("cpu.weight") {
            limits.append(LiftedLimit(cpu, "cpu.weight", "\(weight)"))
        } else if let cpu {
            limits.append(LiftedLimit(cpu, "cpu.shares", "\(max(2, weight * 1024 / 100))"))
        }
        if let disk, let file = ["io.weight", "blkio.bfq.weight", "blkio.weight"].first(where: { disk.has($0) }) {
            limits.append(LiftedLimit(disk, file, file == "io.weight" ? "default \(weight)" : "\(max(10, weight))"))
        }
        if let memory, !isVersion1 { limits.append(LiftedLimit(memory, "memory.low", "\(request?.bytes ?? 0)")) }
        return limits
    }

    // MARK: Throttling

    /// What slows a unit down, and what takes that back.
    package struct Throttle: Sendable {
        package var set: [LiftedLimit] = []
        package var lift: [LiftedLimit] = []
    }

    /// A tenth of a processor finishes what is short and is felt by nobody else. Of the kernel's usual period of 100 ms, so that it is never kept waiting longer
    /// than 90 ms at a time.
    private static let quota = "10000", period = "100000"
    /// Of each disk that it has used: 1 MiB a second, read and written.
    private static let disk = "rbps=1048576 wbps=1048576"
    /// A unit uses few; each is held by the guard.
    private static let mostDisks = 16

    /// How it is slowed down to a tenth of one processor and a mebibyte a second of each disk, as far as its groups can: empty if they can't.
    ///
    /// - Parameter keepsOwn: whether limits of its owner's are put back afterwards.
    package func throttle(keepsOwn: Bool = false) -> Throttle {
        var throttle = Throttle()
        func add(_ directory: GroupDirectory, _ file: String, _ text: String, free: String, own: String?, present: String) {
            throttle.set.append(LiftedLimit(directory, file, text))
            let before = keepsOwn ? own.flatMap { LiftedLimit.isSet(present, in: $0) ? nil : $0 } : nil
            throttle.lift.append(LiftedLimit(directory, file, before ?? free, present: present))
        }
        func text(_ directory: GroupDirectory, _ file: String) -> [Substring] {
            guard case .success(let text) = GroupText.read(file, in: directory.descriptor) else { return [] }
            return String(decoding: text, as: UTF8.self).split(separator: "\n")
        }
        if let cpu, cpu.has("cpu.max") {
            let set = "\(Self.quota) \(Self.period)"
            add(cpu, "cpu.max", set, free: "max \(Self.period)", own: text(cpu, "cpu.max").first.map(String.init), present: set)
        } else if let cpu, cpu.has("cpu.cfs_quota_us") {
            add(cpu, "cpu.cfs_quota_us", Self.quota, free: "-1", own: text(cpu, "cpu.cfs_quota_us").first.map(String.init), present: Self.quota)
        }
        guard let unified, unified.has("io.max") else { return throttle }
        let present = text(unified, "io.max")
        let disks = Set((text(unified, "io.stat") + present).compactMap { $0.split(separator: " ").first }).filter { $0.contains(":") }
        for disk in disks.sorted().prefix(Self.mostDisks) {
            let set = "\(disk) \(Self.disk)", own = present.first { $0.hasPrefix("\(disk) ") }
            add(unified, "io.max", set, free: "\(disk) rbps=max wbps=max", own: own.map(String.init), present: set)
        }
        return throttle
    }

    /// - Throws: if not even the processor can be bounded; a disk without bounds has none.
    package func apply(_ throttle: Throttle) throws(GroupError) {
        for limit in throttle.set {
            do throws(GroupError) { try limit.directory.write(limit.text, to: limit.file, for: .throttle) } catch {
                guard limit.file == "io.max", error.reason != .replaced else { throw error }
            }
        }
    }

    var whyNotThrottled: String { "\(name) is not throttled: its groups have no cpu controller with CONFIG_CFS_BANDWIDTH" }

    /// Slows it down, or lets it go as its weight allows.
    ///
    /// - Returns: why it can't be done here; `nil` if it was.
    @discardableResult
    package func throttle(_ on: Bool) throws(GroupError) -> String? {
        let throttle = self.throttle()
        if throttle.set.isEmpty { return whyNotThrottled }
        if on { try apply(throttle) }
        for limit in on ? [] : throttle.lift { try limit.directory.write(limit.text, to: limit.file, for: .throttle) }
        return nil
    }
}

extension ServiceUnit.Role {
    /// On version 2's scale, where 100 is what everybody has: in front as much as anything else on the machine, in the background a quarter of that so that one
    /// in front gets four fifths against one behind, and a tenth for what may as well run later.
    package var weight: Int {
        switch self {
        case .foreground: 100
        case .background: 25
        case .deferred: 10
        }
    }
}
