#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc
import Plimsoll

extension CgroupReader {
    func read(at now: Duration) throws(PressureSourceError) -> PressureReading {
        self.now = now
        if limitsReadAt.isDue(after: limitInterval, at: now) {
            if readMembership() != membership || chain.hasNewLevel() { isLost = true }
            readLimits()
        }
        if isLost, lookup.isOver(at: now) { lookUp() }
        machineMemory = machine.memory(at: now)

        var reading = PressureReading(at: now)
        check(&reading)
        if reading.limit == nil, isLost, lookup.isOver(at: now) {
            lookUp()
            check(&reading)
        }
        boundByMachine(&reading)

        if healthCheckedAt.isDue(after: .seconds(1), at: now) {
            healthCheckedAt = now
            armEventSources()
            readResident()
            readKills()
            if health != Health(self) { publish() }
            if !isLost { lookup.recovered() }
        }
        reading.resident = resident ?? .zero
        reading.stall = stall.totals(at: now)
        reading.events = limitEvents?.counts(at: now)
        reading.ownKills = ownKills
        let (announced, own) = (shared.takeAnnounced(), announcement.take())
        reading.announced = announced.map { max($0, own ?? .normal) } ?? own
        updateRings(reading)
        if reading.limit == nil, reading.stall == nil, reading.events == nil, reading.announced == nil, resident == nil
        {
            throw PressureSourceError(
                "cannot read limits, usage or stall: \(machine.file.path): \(machine.file.failure ?? .malformed)"
            )
        }
        return reading
    }

    /// Reads usage and available memory at each level that has a limit.
    ///
    /// Reports the smallest limit, and the least available memory of any level. Both move without jumps, and so does
    /// their difference. Reporting whichever level is shortest would make a change of level look like growth.
    private func check(_ reading: inout PressureReading) {
        var available = KernelText.unlimited
        var smallest = KernelText.unlimited
        var free = KernelText.unlimited
        otherFree = KernelText.unlimited
        var next = chain.first
        while let level = next {
            next = level.parent
            guard level.isFinite else { continue }
            guard let usage = level.usage() else {
                isLost = true
                continue
            }
            // The numbers are those of another group at the same path, and the event sources belong to the former one.
            if level.isReplaced { isLost = true }
            let growthFloor = options.thresholds.growthFloor.below(ByteCount(level.limit)).bytes
            available = min(available, level.available(usage: usage, growthFloor: growthFloor, at: now))
            let levelFree = max(0, level.limit - usage)
            let idle = PressureReading.IdleMemory(
                total: ByteCount(level.limit), free: ByteCount(levelFree),
                file: ByteCount(min(usage, level.stat.idleFile)))
            if idle.sum < reading.idle?.sum ?? .max { reading.idle = idle }
            otherFree = min(otherFree, level.limit < smallest ? free : levelFree)
            if level.limit < smallest {
                smallest = level.limit
                free = levelFree
                reading.boundary = level.boundary
                reading.limit = ByteCount(level.limit)
                reading.usage = ByteCount(usage)
                reading.workingSet = ByteCount(max(0, usage - level.stat.inactiveFile))
                reading.lazyFreed = level.stat.lazyFreedPages.map { .pages($0) }
                // A limit lowered below usage shows only here.
                if usage > level.limit, limitsReadAt.isDue(after: .seconds(1), at: now) { limitsReadAt = nil }
            }
        }
        if reading.limit != nil { reading.available = ByteCount(available) }
    }

    /// Bounds the reading by the machine: no group can have more. Where no group has a limit, the machine is the limit.
    private func boundByMachine(_ reading: inout PressureReading) {
        guard let memory = machineMemory else { return }
        reading.machineIdle = .init(
            total: ByteCount(memory.total), free: ByteCount(memory.free), file: ByteCount(memory.inactiveFile))
        if let available = reading.available {
            reading.available = min(available, ByteCount(memory.available))
        } else {
            reading.boundary = .machine
            reading.limit = ByteCount(memory.total)
            reading.available = ByteCount(memory.available)
            reading.usage = ByteCount(memory.total - memory.available)
            reading.workingSet = reading.usage
        }
    }

    func readResident() {
        residentReadAt = now
        resident = residentFile.read { ProcessMemory.residentPages($0) }.map(ByteCount.pages)
    }

    var hasResident: Bool { resident != nil }

    func readKills() { ownKills = killsFile?.read { PressureReading.EventCounts.oomKills($0) } }

    /// Tells the loop if the kernel itself sends an event before memory is short. That is an eventfd threshold still
    /// ahead, or memory.high throttling, which reports at once. Neither helps where page cache has taken usage past the
    /// threshold, or for another limit or the machine. So these must have twice as much free memory. Where a group is
    /// gone, nothing is known of the events.
    private func updateRings(_ reading: PressureReading) {
        var rings = false
        if !isLost, let tightest, let limit = reading.limit, reading.boundary != .machine {
            let free = max(0, (limit - reading.usage).bytes)
            let isGroupShortest = min(machineMemory?.available ?? KernelText.unlimited, otherFree) / 2 >= free
            let isThresholdAhead = thresholds?.warningUsage.map { reading.usage.bytes < $0 } ?? false
            let isBraked = reading.boundary == .high && tightest.hasBrake && limitEvents?.isWakeupLive == true
            rings = isGroupShortest && (isThresholdAhead || isBraked)
        }
        shared.setRings(rings)
    }
}

extension ByteCount {
    /// Returns the size of that many pages.
    static func pages(_ count: Int) -> ByteCount {
        ByteCount(count.multipliedReportingOverflow(by: sysconf(Int32(_SC_PAGESIZE))).partialValue)
    }
}
#endif
