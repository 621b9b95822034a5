#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc
import Plimsoll

/// The state of the observing thread: the files of the group, when each was last read, and the event sources. Used by
/// one thread at a time.
final class CgroupReader {
    let options: LinuxPressureSource.Options
    let kernel: any Kernel
    let shared: SharedView
    let buffer = TextBuffer()

    private(set) var group: ControlGroup
    private(set) var chain: LimitChain
    private(set) var tightest: LimitLevel?
    let machine: Machine
    var machineMemory: MachineMemory?
    private(set) var limitEvents: LimitEvents?
    private(set) var thresholds: UsageThresholds?
    private(set) var limitWatch: LimitWatch?
    private(set) var stall: StallWatch
    private(set) var announcement: Announcement
    private(set) var throttle: MemoryHigh?
    /// The least free memory of any level but the one with the smallest limit, in bytes. Page cache counts as used.
    var otherFree = KernelText.unlimited
    let residentFile: KernelFile
    var resident: ByteCount?
    /// The count of kills in the own group; `nil` without a memory controller.
    private(set) var killsFile: KernelFile?
    /// The last count; `nil` if it can't be read.
    var ownKills: Int?

    /// Processes are moved between groups without any file event (K19). Where limits can't be watched, their changes
    /// have no event either.
    var limitInterval: Duration { limitWatch?.isLive == true ? .seconds(10) : .seconds(1) }
    var limitsReadAt: Duration?
    var residentReadAt: Duration?
    var healthCheckedAt: Duration?
    var health = Health()
    private let membershipFile: KernelFile
    var membership: UInt64?
    /// True if a group or a file is gone, so that all of them must be found anew.
    var isLost = false
    var lookup = BackOff()
    var wakeRepair = BackOff()

    /// The time of the last reading, which is the clock of all pauses.
    var now = Duration.zero
    let slots: UnsafeMutableBufferPointer<pollfd>

    init(
        _ options: LinuxPressureSource.Options, _ kernel: any Kernel, _ environment: LinuxPressureSource.Environment,
        _ shared: SharedView
    ) {
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

    /// Finds the group and all dependent objects.
    func lookUp() {
        lookup.failed(at: now)
        isLost = false
        group = ControlGroup(kernel)
        chain = LimitChain(group, kernel, buffer)
        stall = StallWatch(group.unified, kernel, buffer, after: stall)
        limitEvents = nil
        thresholds = nil
        throttle = nil
        wire()
    }

    /// Reads the limits and creates the objects that depend on the group.
    private func wire() {
        membership = readMembership()
        if group.isUncertain || chain.isUncertain { isLost = true }
        machineMemory = machine.memory(at: now)
        if options.setsHigh, group.version == .v2, case .directory(let own, _) = group.memory,
            chain.first?.directory == own
        {
            throttle = MemoryHigh(own, kernel, buffer)
        }
        limitWatch = chain.first.map { LimitWatch(from: $0, kernel) }
        killsFile = chain.first.map { $0.openKillsFile(kernel, buffer) }
        readKills()
        readLimits()
        _ = stall.totals(at: now)
        armEventSources()
        if residentReadAt.isDue(after: .seconds(1), at: now) { readResident() }
        publish()
    }

    func readMembership() -> UInt64? {
        membershipFile.read { text in
            // Only used to see if the text has changed.
            var sum = FNV1a()
            for index in text.indices { sum.add(text[index]) }
            return sum.hash
        }
    }

    /// Reads all limits again, and updates everything derived from them.
    func readLimits() {
        limitsReadAt = now
        let total = machineMemory?.total ?? KernelText.unlimited
        if !chain.readLimits(total: total) { isLost = true }
        if let throttle, let own = chain.first, let usage = own.usage(),
            throttle.apply(below: own.maximum, usage: usage)
        {
            _ = chain.readLimits(total: total)
        }
        tightest = chain.tightest
        watchStall()
        let place = tightest ?? chain.first
        if let place, limitEvents?.directory != place.directory {
            limitEvents = LimitEvents(place.directory, place.version, kernel, buffer)
        }
        if place == nil { limitEvents = nil }
        _ = limitEvents?.counts(at: now)
        setThresholds()
        shared.setUsagePath(tightest?.usageFile.path)
    }

    /// Stall is measured where the limit is set (K15). The own group can be calm while a group above, with the limit
    /// both share, is thrashing. Totals that may be readable after all are tried again.
    private func watchStall() {
        var place = group.unified
        if let tightest, tightest.version == .v2, case .directory(_, let top) = place {
            place = .directory(tightest.directory, top: top)
        }
        guard stall.place != place || stall.isUncertain else { return }
        stall = StallWatch(place, kernel, buffer, after: stall)
        // The capabilities name the file, so they are made again.
        health = Health()
    }

    /// Version 1: sets the kernel's usage thresholds at the margins.
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
            critical: (limit - options.thresholds.criticalMargin.below(limit)).bytes,
            // Below half of the free reserve beside volatile memory some is released. Half of that again is seldom
            // passed.
            last: (limit - VolatileRoom.margin(below: limit) * 0.25).bytes, at: now)
    }

    /// Arms the event sources that are not armed and whose back-off is over.
    func armEventSources() {
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

    func publish() {
        health = Health(self)
        shared.setCapabilities(makeCapabilities())
    }
}

/// The set of working signals, in a form that costs nothing to compare.
struct Health: Equatable {
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
    var throttle: Int?
    var resident = false
    var machine = false

    init() {}

    init(_ observer: CgroupReader) {
        limit = observer.tightest?.limit
        level = observer.tightest.map { ObjectIdentifier($0) }
        usage = observer.tightest?.usageFile.failure == nil
        reclaimable = observer.tightest?.statFile.failure == nil
        events = observer.limitEvents?.counts != nil
        eventsRing = observer.limitEvents?.isWakeupLive ?? false
        thresholds = observer.thresholds?.warningUsage
        stall = observer.stall.isLive
        trigger = observer.stall.trigger?.threshold != nil
        announced = observer.announcement.isLive
        throttle = observer.throttle?.held?.ours
        resident = observer.hasResident
        machine = observer.machineMemory != nil
    }
}
#endif
