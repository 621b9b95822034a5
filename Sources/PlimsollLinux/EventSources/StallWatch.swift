#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc
import Plimsoll

/// Reads stall totals of a group, or of the machine where the group has none, and owns the trigger on the same file.
final class StallWatch {
    static let machinePath = "/proc/pressure/memory"

    let place: GroupPlace
    /// The file of the totals; `nil` if no totals can be read.
    private let file: KernelFile?
    /// The reason that the own group has no totals; `nil` if it has.
    let groupFailure: String?
    /// True if the own group may have totals after all.
    private(set) var isUncertain = false
    /// The reason that there are no totals at all; `nil` if there are.
    private(set) var failure: String?
    let trigger: StallTrigger?
    private var totals: PressureReading.StallTotals?
    private var readAt: Duration?
    /// The last numbers in the file, and the last totals returned for this or a former file.
    private var written: PressureReading.StallTotals?, told: PressureReading.StallTotals?
    /// Added to the numbers in the file.
    private var shift = PressureReading.StallTotals(some: .zero)
    /// The file of the last totals returned, the numbers in that file, and the shift; of this or a former watch.
    private var last: (path: String, written: PressureReading.StallTotals, shift: PressureReading.StallTotals)?

    /// Tries each file by reading. Where stall accounting is off, files may exist and fail when read (K10).
    ///
    /// - Parameter former: the watch that this one replaces. The totals go on from the former ones: the difference
    ///   between the totals of two groups is no stall (K12).
    init(_ place: GroupPlace, _ kernel: any Kernel, _ buffer: TextBuffer, after former: StallWatch? = nil) {
        self.place = place
        var groupFailure: String?
        var found: KernelFile?
        var first: PressureReading.StallTotals?
        switch place {
        case .hidden(let reason): groupFailure = reason
        case .directory(let directory, _):
            let own = KernelFile(directory + "/memory.pressure", kernel, buffer)
            first = own.read { PressureReading.StallTotals($0) }
            if first != nil {
                found = own
            } else {
                groupFailure = "\(own.path): \(own.failure ?? .malformed)"
                isUncertain = own.failure?.isLasting != true
            }
        }
        if found == nil {
            let machine = KernelFile(Self.machinePath, kernel, buffer)
            first = machine.read { PressureReading.StallTotals($0) }
            if first != nil {
                found = machine
            } else {
                failure = "\(machine.path): \(machine.failure ?? .malformed)"
                isUncertain = isUncertain || machine.failure?.isLasting != true
            }
        }
        self.groupFailure = groupFailure
        file = found
        trigger = found.map { StallTrigger($0.path, kernel) }
        (written, told, last) = (first, former?.told, former?.last)
        guard let told, let first else { return }
        if let last, last.path == found?.path, first.some >= last.written.some {
            shift = last.shift
        } else {
            shift = .init(some: told.some - first.some, full: told.full - first.full)
        }
    }

    var path: String? { file?.path }
    var isLive: Bool { totals != nil }

    /// Returns the totals, read again once a second. More frequent reads would consume the kernel's averaging ticks,
    /// and so break the triggers (K6).
    func totals(at now: Duration) -> PressureReading.StallTotals? {
        guard readAt.isDue(after: .seconds(1), at: now) else { return totals }
        return readNow(at: now)
    }

    private func readNow(at now: Duration) -> PressureReading.StallTotals? {
        readAt = now
        guard let present = file?.read({ PressureReading.StallTotals($0) }) else {
            totals = nil
            return nil
        }
        // A group that was made again counts from zero.
        if let written, let told, present.some < written.some {
            shift = .init(some: told.some - present.some, full: told.full - present.full)
        }
        written = present
        totals = .init(some: present.some + shift.some, full: present.full + shift.full)
        told = totals
        last = file.map { ($0.path, present, shift) }
        return totals
    }

    /// Arms the trigger unless already armed.
    func armTrigger(at now: Duration) {
        guard let trigger, trigger.eventSource.isToBeArmed(at: now) else { return }
        trigger.arm(readNow(at: now), at: now)
    }

    /// Handles readiness of the trigger's file.
    func handle(_ conditions: Int16, at now: Duration) { _ = trigger?.handle(conditions, at: now) { readNow(at: now) } }
}
#endif
