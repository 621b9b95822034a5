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

    /// Slows it down to a tenth of one processor, or lets it go as its weight allows.
    ///
    /// - Returns: why it can't be done here; `nil` if it was.
    @discardableResult
    package func throttle(_ on: Bool) throws(GroupError) -> String? {
        // A tenth of a processor finishes what is short and is felt by nobody else. Of the kernel's usual period of 100 ms, so that it is never
        // kept waiting longer than 90 ms at a time.
        if let cpu, cpu.has("cpu.max") {
            try cpu.write(on ? "10000 100000" : "max 100000", to: "cpu.max", for: .throttle)
        } else if let cpu, cpu.has("cpu.cfs_quota_us") {
            try cpu.write(on ? "10000" : "-1", to: "cpu.cfs_quota_us", for: .throttle)
        } else {
            return "\(name) is not throttled: its groups have no cpu controller with CONFIG_CFS_BANDWIDTH"
        }
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
