import Glibc
import Plimsoll

/// Time lost to stalls: totals of a group, or of the machine where the group keeps none, and the trigger on the same file.
final class StallWatch {
    static let machinePath = "/proc/pressure/memory"

    let place: GroupPlace
    /// Set where the totals can be read.
    private let file: KernelFile?
    /// Why the own group keeps none; `nil` if it does.
    let groupFailure: String?
    /// Whether the own group may keep some after all.
    private(set) var isUncertain = false
    /// Why nobody keeps any; `nil` if there are totals.
    private(set) var failure: String?
    let trigger: StallTrigger?
    private var totals: PressureReading.StallTotals?
    private var readAt: Duration?

    /// Tries each file by reading it: where stall accounting is off, files may be there and fail when read (K10).
    init(_ place: GroupPlace, _ kernel: any Kernel, _ buffer: TextBuffer) {
        self.place = place
        var groupFailure: String?
        var found: KernelFile?
        switch place {
        case .hidden(let reason): groupFailure = reason
        case .directory(let directory, _):
            let own = KernelFile(directory + "/memory.pressure", kernel, buffer)
            if own.read({ PressureReading.StallTotals($0) }) != nil {
                found = own
            } else {
                groupFailure = "\(own.path): \(own.failure ?? .malformed)"
                isUncertain = own.failure?.isLasting != true
            }
        }
        if found == nil {
            let machine = KernelFile(Self.machinePath, kernel, buffer)
            if machine.read({ PressureReading.StallTotals($0) }) != nil {
                found = machine
            } else {
                failure = "\(machine.path): \(machine.failure ?? .malformed)"
                isUncertain = isUncertain || machine.failure?.isLasting != true
            }
        }
        self.groupFailure = groupFailure
        file = found
        trigger = found.map { StallTrigger($0.path, kernel) }
    }

    /// The file in use.
    var path: String? { file?.path }
    var isLive: Bool { totals != nil }

    /// The totals, read again once a second: more often would eat the kernel's own averaging ticks and with them its triggers (K6).
    func totals(at now: Duration) -> PressureReading.StallTotals? {
        guard readAt.isDue(after: .seconds(1), at: now) else { return totals }
        return readNow(at: now)
    }

    private func readNow(at now: Duration) -> PressureReading.StallTotals? {
        readAt = now
        totals = file?.read { PressureReading.StallTotals($0) }
        return totals
    }

    /// Arms the trigger if it isn't, or not any more.
    func armTrigger(at now: Duration) {
        guard let trigger, trigger.bell.isToBeArmed(at: now) else { return }
        trigger.arm(readNow(at: now), at: now)
    }

    /// The trigger's file was ready.
    func heard(_ conditions: Int16, at now: Duration) { _ = trigger?.heard(conditions, at: now) { readNow(at: now) } }
}
