#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc

/// Usage thresholds of version 1: eventfds that the kernel writes to when usage crosses a number, up or down
/// (`cgroup.event_control`).
///
/// There is one at the warning margin, one at the critical margin, and a last one just before the limit. They fire 0.1
/// ms after the crossing. But usage counts page cache and volatile pages, so a threshold helps only while usage is
/// still below. A group filled by volatile memory has passed the first two. Then only the last one reports that the
/// free reserve is being used.
final class UsageThresholds {
    /// Usage that oscillates around the number fires each time.
    static let pause = Duration.milliseconds(100)

    private(set) var warning = EventSource(POLLIN)
    private(set) var critical = EventSource(POLLIN)
    private(set) var last = EventSource(POLLIN)
    /// The usage, in bytes, at which the first threshold fires; `nil` if not armed.
    private(set) var warningUsage: Int?
    private var criticalUsage: Int?
    private var lastUsage: Int?
    /// The reason that the thresholds are not armed.
    private(set) var failure: KernelError?

    private let kernel: any Kernel
    let directory: String

    init(_ directory: String, _ kernel: any Kernel) {
        self.directory = directory
        self.kernel = kernel
    }

    deinit { disarm() }

    /// Sets the thresholds, at usages in bytes; does nothing if they are set so already.
    func arm(warning first: Int, critical second: Int, last third: Int, at now: Duration) {
        if warningUsage == first, criticalUsage == second, lastUsage == third { return }
        disarm()
        failure = arm(&warning, first) ?? arm(&critical, second) ?? arm(&last, third)
        if failure == nil {
            (warningUsage, criticalUsage, lastUsage) = (first, second, third)
        } else {
            disarm()
            warning.failed(at: now)
        }
    }

    /// Returns true if arming may be tried again.
    func isToBeArmed(at now: Duration) -> Bool { warning.isToBeArmed(at: now) }

    func disarm() {
        warning.closed(kernel)
        critical.closed(kernel)
        last.closed(kernel)
        (warningUsage, criticalUsage, lastUsage) = (nil, nil, nil)
    }

    /// Registers one eventfd: `EVENTFD FILE USAGE`. The registration ends with the eventfd. The other two files are
    /// needed only to register.
    private func arm(_ eventSource: inout EventSource, _ usage: Int) -> KernelError? {
        let event = kernel.makeEvent()
        guard event >= 0 else { return KernelError(number: -event) }
        eventSource.file = event
        let watched = kernel.open(directory + "/memory.usage_in_bytes", .reading)
        guard watched >= 0 else { return KernelError(number: -watched) }
        defer { kernel.close(watched) }
        let control = kernel.open(directory + "/cgroup.event_control", .writing)
        guard control >= 0 else { return KernelError(number: -control) }
        defer { kernel.close(control) }
        var text = TextWriter()
        text.add(Int(event))
        text.add(byte: KernelText.space)
        text.add(Int(watched))
        text.add(byte: KernelText.space)
        text.add(usage)
        return text.write(to: control, kernel)
    }

    func handleWarning(_ conditions: Int16, at now: Duration) {
        if !handle(&warning, conditions, at: now) { lost(at: now) }
    }
    func handleCritical(_ conditions: Int16, at now: Duration) {
        if !handle(&critical, conditions, at: now) { lost(at: now) }
    }
    func handleLast(_ conditions: Int16, at now: Duration) {
        if !handle(&last, conditions, at: now) { lost(at: now) }
    }

    /// Returns false if the descriptor is not ours any more. The caller handles the loss: here the source is being
    /// changed, and a second change at the same time would end the process.
    private func handle(_ eventSource: inout EventSource, _ conditions: Int16, at now: Duration) -> Bool {
        guard conditions & Int16(POLLIN) != 0, kernel.drain(eventSource.file) > 0 else {
            eventSource.file = -1
            return false
        }
        eventSource.rang(at: now, pause: Self.pause)
        return true
    }

    /// Handles the loss of a descriptor: all are armed anew after a pause.
    private func lost(at now: Duration) {
        disarm()
        failure = KernelError(number: EBADF)
        warning.failed(at: now)
    }
}
#endif
