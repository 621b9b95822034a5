import Glibc
import Plimsoll

/// What the observing thread owns: the files of the group, when each was last read, and the bells. Used by one thread at a time.
final class GroupObserver {
    let options: LinuxPressureSource.Options
    let kernel: any Kernel
    let shared: SharedView
    let buffer = TextBuffer()

    private(set) var group: ControlGroup
    private(set) var chain: LimitChain
    /// The level with the smallest limit.
    private(set) var tightest: LimitLevel?
    let machine: Machine
    private(set) var machineMemory: MachineMemory?
    private(set) var limitEvents: LimitEvents?
    private(set) var thresholds: UsageThresholds?
    private(set) var limitWatch: LimitWatch?
    private(set) var stall: StallWatch
    private(set) var announcement: Announcement
    private(set) var brake: MemoryHigh?
    let residentFile: KernelFile
    private var resident: ByteCount?

    /// Processes are moved between groups without any file telling of it (K19); where limits can't be watched, neither does one tell of them.
    private var limitInterval: Duration { limitWatch?.isLive == true ? .seconds(10) : .seconds(1) }
    private var limitsReadAt: Duration?
    private var residentReadAt: Duration?
    private var healthCheckedAt: Duration?
    private var health = Health()
    private let membershipFile: KernelFile
    private var membership: UInt64?
    /// A group or a file is gone: everything is to be looked up anew.
    private var isLost = false
    private var lookup = BackOff()
    private var wakeRepair = BackOff()

    /// The time of the last reading, which is the clock of all pauses.
    private(set) var now = Duration.zero
    private let slots: UnsafeMutableBufferPointer<pollfd>

    init(_ options: LinuxPressureSource.Options, _ kernel: any Kernel, _ environment: LinuxPressureSource.Environment, _ shared: SharedView) {
        self.options = options
        self.kernel = kernel
        self.shared = shared
        slots = .allocate(capacity: Slot.allCases.count)
        machine = Machine(kernel, buffer)
        residentFile = KernelFile("/proc/self/statm", kernel, buffer)
        membershipFile = KernelFile("/proc/self/cgroup", kernel, buffer)
        group = ControlGroup(kernel)
        chain = LimitChain(group, kernel, buffer)
        stall = StallWatch(group.unified, kernel, buffer)
        let unified = group.unified
        announcement = Announcement(kernel, buffer) {
            ServiceManagerWatch(watch: environment.watch, write: environment.write, unified: unified, kernel)
        }
        wire()
    }

    deinit { slots.deallocate() }

    // MARK: - Looking up

    /// Finds the group anew, with all that hangs on it.
    private func lookUp() {
        lookup.failed(at: now)
        isLost = false
        group = ControlGroup(kernel)
        chain = LimitChain(group, kernel, buffer)
        stall = StallWatch(group.unified, kernel, buffer)
        limitEvents = nil
        thresholds = nil
        brake = nil
        wire()
    }

    /// Reads the limits and sets everything that hangs on the group found.
    private func wire() {
        membership = readMembership()
        if group.isUncertain || chain.isUncertain || stall.isUncertain { isLost = true }
        machineMemory = machine.memory(at: now)
        if options.setsHigh, group.version == .v2, case .directory(let own, _) = group.memory, chain.first?.directory == own {
            brake = MemoryHigh(own, kernel, buffer)
        }
        limitWatch = chain.first.map { LimitWatch(from: $0, kernel) }
        readLimits()
        _ = stall.totals(at: now)
        armBells()
        if residentReadAt.isDue(after: .seconds(1), at: now) { readResident() }
        publish()
    }

    private func readMembership() -> UInt64? {
        membershipFile.read { text in
            // FNV-1a: only whether the text has changed is asked.
            var hash: UInt64 = 0xcbf2_9ce4_8422_2325
            for index in text.indices { hash = (hash ^ UInt64(text[index])) &* 0x100_0000_01b3 }
            return hash
        }
    }

    /// Reads all limits again, and moves with them what is set by them.
    private func readLimits() {
        limitsReadAt = now
        let total = machineMemory?.total ?? KernelText.unlimited
        if !chain.readLimits(total: total) { isLost = true }
        if let brake, let own = chain.first, let usage = own.usage(), brake.apply(below: own.maximum, usage: usage) {
            _ = chain.readLimits(total: total)
        }
        tightest = chain.tightest
        let place = tightest ?? chain.first
        if let place, limitEvents?.directory != place.directory { limitEvents = LimitEvents(place.directory, place.version, kernel, buffer) }
        if place == nil { limitEvents = nil }
        _ = limitEvents?.counts(at: now)
        setThresholds()
        shared.setUsagePath(tightest?.usageFile.path)
    }

    /// Version 1: the kernel's own bells, where the margins begin.
    private func setThresholds() {
        guard let tightest, tightest.version == .v1 else {
            thresholds = nil
            return
        }
        if thresholds?.directory != tightest.directory { thresholds = UsageThresholds(tightest.directory, kernel) }
        guard let thresholds, thresholds.warningUsage != nil || thresholds.isToBeArmed(at: now) else { return }
        let limit = ByteCount(tightest.limit)
        thresholds.arm(
            warning: (limit - options.thresholds.warningMargin.below(limit)).bytes,
            critical: (limit - options.thresholds.criticalMargin.below(limit)).bytes, at: now)
    }

    /// Arms what is not armed, where its pause is over.
    private func armBells() {
        announcement.arm(at: now)
        if wantsTrigger { stall.armTrigger(at: now) }
        if let thresholds, thresholds.warningUsage == nil { setThresholds() }
    }

    private var wantsTrigger: Bool {
        guard options.usesTriggers else { return false }
        return switch announcement.plan {
        case .disabled: false
        case .watch(let watch): watch.kind != .stallFile
        case .absent, .refused, .unreachable: true
        }
    }

    // MARK: - Reading

    func read(at now: Duration) throws(PressureSourceError) -> PressureReading {
        self.now = now
        if limitsReadAt.isDue(after: limitInterval, at: now) {
            if readMembership() != membership { isLost = true }
            readLimits()
        }
        if isLost, lookup.isOver(at: now) { lookUp() }
        machineMemory = machine.memory(at: now)

        var reading = PressureReading(at: now)
        look(&reading)
        if reading.limit == nil, isLost, lookup.isOver(at: now) {
            lookUp()
            look(&reading)
        }
        boundByMachine(&reading)

        if healthCheckedAt.isDue(after: .seconds(1), at: now) {
            healthCheckedAt = now
            armBells()
            readResident()
            if health != Health(self) { publish() }
            if !isLost { lookup.recovered() }
        }
        reading.resident = resident ?? .zero
        reading.stall = stall.totals(at: now)
        reading.events = limitEvents?.counts(at: now)
        reading.announced = announcement.take()
        updateRings(reading)
        if reading.limit == nil, reading.stall == nil, reading.events == nil, reading.announced == nil, resident == nil {
            throw PressureSourceError("neither limits nor usage nor stall can be read: \(machine.file.path): \(machine.file.failure ?? .malformed)")
        }
        return reading
    }

    /// Usage and what is available, at each level that has a limit.
    ///
    /// The limit told is the smallest; available is the least that any level leaves. Both move without jumps, and so does their difference,
    /// while telling of whichever level is shortest would take a change of level for growth.
    private func look(_ reading: inout PressureReading) {
        var available = KernelText.unlimited
        var smallest = KernelText.unlimited
        var next = chain.first
        while let level = next {
            next = level.parent
            guard level.isFinite else { continue }
            guard let usage = level.usage() else {
                isLost = true
                continue
            }
            let growthFloor = options.thresholds.growthFloor.below(ByteCount(level.limit)).bytes
            available = min(available, level.available(usage: usage, growthFloor: growthFloor, at: now))
            if level.limit < smallest {
                smallest = level.limit
                reading.boundary = level.boundary
                reading.limit = ByteCount(level.limit)
                reading.usage = ByteCount(usage)
                reading.workingSet = ByteCount(max(0, usage - level.stat.inactiveFile))
                // A limit lowered below what is used tells of itself only here.
                if usage > level.limit, limitsReadAt.isDue(after: .seconds(1), at: now) { limitsReadAt = nil }
            }
        }
        if reading.limit != nil { reading.available = ByteCount(available) }
    }

    /// No group can have more than the machine; where none has a limit, the machine is the limit.
    private func boundByMachine(_ reading: inout PressureReading) {
        guard let memory = machineMemory else { return }
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

    private func readResident() {
        residentReadAt = now
        resident = residentFile.read { ProcessMemory.residentPages($0) }.map(ByteCount.pages)
    }

    var hasResident: Bool { resident != nil }

    /// Whether the kernel itself rings before memory is short: an eventfd still to be crossed, or a brake that reports at once. It can't for the
    /// machine, for a second limit, or where page cache has taken usage past the number.
    private func updateRings(_ reading: PressureReading) {
        var rings = false
        if let tightest, let limit = reading.limit, chain.isSingle {
            let isGroupShortest = (machineMemory?.available ?? KernelText.unlimited) > (limit - reading.usage).bytes
            let isThresholdAhead = thresholds?.warningUsage.map { reading.usage.bytes < $0 } ?? false
            let isBraked = reading.boundary == .high && tightest.hasBrake && limitEvents?.isBellLive == true
            rings = isGroupShortest && (isThresholdAhead || isBraked)
        }
        shared.setRings(rings)
    }

    private func publish() {
        health = Health(self)
        shared.setCapabilities(makeCapabilities())
    }

    // MARK: - Waiting

    /// The files a wait listens to.
    enum Slot: Int, CaseIterable { case wake, events, limits, warning, critical, trigger, announcement }

    /// Blocks until a bell rings or the time has passed. It may also end early for nothing; the loop then looks once more than it need.
    func wait(atMost limit: Duration) {
        if shared.wakeBell.take() { return }
        var nanoseconds = max(0, limit.inNanoseconds)
        if shared.wakeBell.file < 0, wakeRepair.isOver(at: now) {
            shared.wakeBell.repair()
            wakeRepair.failed(at: now)
        }
        slots[Slot.wake.rawValue] = pollfd(fd: shared.wakeBell.file, events: Int16(POLLIN), revents: 0)
        // Without an eventfd the flag is looked at now and then.
        if shared.wakeBell.file < 0 { nanoseconds = min(nanoseconds, 50_000_000) }
        nanoseconds = min(nanoseconds, listen(.events, limitEvents?.bell))
        nanoseconds = min(nanoseconds, listen(.limits, limitWatch?.bell))
        nanoseconds = min(nanoseconds, listen(.warning, thresholds?.warning))
        nanoseconds = min(nanoseconds, listen(.critical, thresholds?.critical))
        nanoseconds = min(nanoseconds, listen(.trigger, stall.trigger?.bell))
        nanoseconds = min(nanoseconds, listen(.announcement, announcement.bell))

        let ready = kernel.wait(for: slots, nanoseconds: nanoseconds)
        if ready > 0 {
            hear()
        } else if ready < 0 {
            // The kernel has no memory for a wait, or refuses it: sleep without listening rather than spin.
            usleep(UInt32(min(nanoseconds, 10_000_000) / 1000))
        }
    }

    /// Takes `bell` into the wait, or leaves it out while it is to be deaf. How long the wait may last for it, in nanoseconds.
    private func listen(_ slot: Slot, _ bell: Bell?) -> Int64 {
        guard let bell else {
            slots[slot.rawValue] = pollfd(fd: -1, events: 0, revents: 0)
            return .max
        }
        slots[slot.rawValue] = pollfd(fd: bell.isHeard(at: now) ? bell.file : -1, events: bell.events, revents: 0)
        // A short rest must not make a long wait deaf.
        guard let rest = bell.rest(at: now), rest <= .seconds(1) else { return .max }
        return max(1_000_000, rest.inNanoseconds)
    }

    /// What a file of the last wait reported; `nil` for nothing.
    private func conditions(_ slot: Slot) -> Int16? {
        let found = slots[slot.rawValue]
        return found.fd >= 0 && found.revents != 0 ? found.revents : nil
    }

    private func hear() {
        if let found = conditions(.wake), !shared.wakeBell.heard(found) { wakeRepair.failed(at: now) }
        if let found = conditions(.events) { limitEvents?.heard(found, at: now) }
        if let found = conditions(.limits) {
            limitWatch?.heard(found, at: now)
            limitsReadAt = nil
        }
        if let found = conditions(.warning) { thresholds?.heardWarning(found, at: now) }
        if let found = conditions(.critical) { thresholds?.heardCritical(found, at: now) }
        if let found = conditions(.trigger) { stall.heard(found, at: now) }
        if let found = conditions(.announcement) { announcement.heard(found, at: now) }
    }
}

/// Which signals work, in a form that costs nothing to compare.
private struct Health: Equatable {
    var limit: Int?
    var level: ObjectIdentifier?
    var usage = false
    var reclaimable = false
    var events = false
    var eventsRing = false
    var thresholds: Int?
    var stall = false
    var trigger = false
    var announced = false
    var brake: Int?
    var resident = false
    var machine = false

    init() {}

    init(_ observer: GroupObserver) {
        limit = observer.tightest?.limit
        level = observer.tightest.map { ObjectIdentifier($0) }
        usage = observer.tightest?.usageFile.failure == nil
        reclaimable = observer.tightest?.statFile.failure == nil
        events = observer.limitEvents?.counts != nil
        eventsRing = observer.limitEvents?.isBellLive ?? false
        thresholds = observer.thresholds?.warningUsage
        stall = observer.stall.isLive
        trigger = observer.stall.trigger?.threshold != nil
        announced = observer.announcement.isLive
        brake = observer.brake?.held?.ours
        resident = observer.hasResident
        machine = observer.machineMemory != nil
    }
}

extension ByteCount {
    /// That many pages of memory.
    static func pages(_ count: Int) -> ByteCount { ByteCount(count.multipliedReportingOverflow(by: sysconf(Int32(_SC_PAGESIZE))).partialValue) }
}
