import Plimsoll

/// A unit's share of processor and disk (C36, C37).
extension UnitGroup {
    /// Sets the unit's weights under contention, by role.
    ///
    /// - Returns: a sentence for each weight that can't be set here.
    @discardableResult
    package func setWeights(for role: ServiceUnit.Role) throws(GroupError) -> [String] {
        let (processor, disk) = weights(for: role)
        for limit in [processor, disk].compactMap({ $0 }) {
            try limit.directory.write(limit.text, to: limit.file, for: .weigh)
        }
        return [
            processor == nil ? "cannot set the processor weight of \(name): its groups have no cpu controller" : nil,
            disk == nil
                ? "cannot set the disk weight of \(name): its groups have no io controller, or the disk's scheduler has no weights"
                : nil,
        ].compactMap { $0 }
    }

    /// Returns the entries that restore the weights of `role` and memory.low.
    func ownWeights(for role: ServiceUnit.Role, _ request: ByteCount?) -> [LiftedLimit] {
        let (processor, disk) = weights(for: role)
        let low = isVersion1 ? nil : memory.map { LiftedLimit($0, "memory.low", "\(request?.bytes ?? 0)") }
        return [processor, disk, low].compactMap { $0 }
    }

    /// Returns the entries that set the weights of `role`; `nil` for a weight that can't be set here.
    private func weights(for role: ServiceUnit.Role) -> (processor: LiftedLimit?, disk: LiftedLimit?) {
        let weight = role.weight
        // A weight of 100 on version 2 equals 1024 on version 1, where 2 is the minimum.
        let processor = cpu.map {
            $0.has("cpu.weight")
                ? LiftedLimit($0, "cpu.weight", "\(weight)")
                : LiftedLimit($0, "cpu.shares", "\(max(2, weight * 1024 / 100))")
        }
        guard let disk, let file = ["io.weight", "blkio.bfq.weight", "blkio.weight"].first(where: { disk.has($0) })
        else { return (processor, nil) }
        return (processor, LiftedLimit(disk, file, file == "io.weight" ? "default \(weight)" : "\(max(10, weight))"))
    }

    // MARK: Throttling

    /// The limits that throttle a unit, and the texts that lift them.
    package struct Throttle: Sendable {
        package var set: [LiftedLimit] = []
        package var lift: [LiftedLimit] = []
    }

    /// A tenth of a processor: enough to finish short work, and hardly noticeable to other units. The period is the
    /// kernel's usual 100 ms, so a unit never waits longer than 90 ms at a time.
    private static let quota = "10000", period = "100000"
    /// Limit for each disk that the unit has used: 1 MiB per second, for reads and for writes.
    private static let disk = "rbps=1048576 wbps=1048576"
    /// A unit uses few disks. The guard holds one entry for each.
    private static let mostDisks = 16

    /// Returns limits of a tenth of one processor, and of 1 MiB per second on each disk. Limits that the groups lack
    /// are left out; the result is empty if there are none.
    ///
    /// - Parameter keepsOwn: true to restore limits that the owner had set before.
    package func throttle(keepsOwn: Bool = false) -> Throttle {
        var throttle = Throttle()
        func add(
            _ directory: GroupDirectory, _ file: String, _ text: String, free: String, own: String?, present: String
        ) {
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
            add(
                cpu, "cpu.max", set, free: "max \(Self.period)", own: text(cpu, "cpu.max").first.map(String.init),
                present: set)
        } else if let cpu, cpu.has("cpu.cfs_quota_us") {
            add(
                cpu, "cpu.cfs_quota_us", Self.quota, free: "-1",
                own: text(cpu, "cpu.cfs_quota_us").first.map(String.init), present: Self.quota)
        }
        guard let unified, unified.has("io.max") else { return throttle }
        let present = text(unified, "io.max")
        let disks = Set((text(unified, "io.stat") + present).compactMap { $0.split(separator: " ").first }).filter {
            $0.contains(":")
        }
        for disk in disks.sorted().prefix(Self.mostDisks) {
            let set = "\(disk) \(Self.disk)", own = present.first { $0.hasPrefix("\(disk) ") }
            add(unified, "io.max", set, free: "\(disk) rbps=max wbps=max", own: own.map(String.init), present: set)
        }
        return throttle
    }

    /// - Throws: if the processor can't be limited. A disk whose limit is refused runs without a limit.
    package func apply(_ throttle: Throttle) throws(GroupError) {
        for limit in throttle.set {
            do throws(GroupError) { try limit.directory.write(limit.text, to: limit.file, for: .throttle) } catch {
                guard limit.file == "io.max", error.reason != .replaced else { throw error }
            }
        }
    }

    var whyNotThrottled: String {
        "cannot throttle \(name): its groups have no cpu controller with CONFIG_CFS_BANDWIDTH"
    }
}

extension ServiceUnit.Role {
    /// Weight on the scale of version 2, where 100 is the default. A foreground unit weighs as much as any other
    /// group on the machine. A background unit weighs a quarter of that, so one foreground unit gets four fifths
    /// against one background unit. Deferred work gets a tenth.
    package var weight: Int {
        switch self {
        case .foreground: 100
        case .background: 25
        case .deferred: 10
        }
    }
}
