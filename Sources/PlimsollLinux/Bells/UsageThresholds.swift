import Glibc

/// Version 1's own bells: eventfds that the kernel writes to when usage crosses a number, up or down (`cgroup.event_control`).
///
/// Set where less than the warning and the critical margin is free, and a last one just before nothing is. They ring 0.1 ms after the crossing, but
/// usage counts page cache and volatile pages, so they promise something only while usage is still below them. With a group filled by volatile
/// memory the first two are passed, and only the last one tells that somebody takes what is kept free.
final class UsageThresholds {
    /// Usage that swings about the number rings each time.
    static let pause = Duration.milliseconds(100)

    private(set) var warning = Bell(POLLIN)
    private(set) var critical = Bell(POLLIN)
    private(set) var last = Bell(POLLIN)
    /// The usage, in bytes, at which the first bell rings; `nil` if it is not armed.
    private(set) var warningUsage: Int?
    private var criticalUsage: Int?
    private var lastUsage: Int?
    /// Why it is not armed.
    private(set) var failure: KernelError?

    private let kernel: any Kernel
    let directory: String

    init(_ directory: String, _ kernel: any Kernel) {
        self.directory = directory
        self.kernel = kernel
    }

    deinit { disarm() }

    /// Sets the bells, at usages in bytes; does nothing if they are set so already.
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

    /// Whether arming may be tried again.
    func isToBeArmed(at now: Duration) -> Bool { warning.isToBeArmed(at: now) }

    func disarm() {
        warning.closed(kernel)
        critical.closed(kernel)
        last.closed(kernel)
        (warningUsage, criticalUsage, lastUsage) = (nil, nil, nil)
    }

    /// Registers one eventfd: `EVENTFD FILE USAGE`. The registration ends with the eventfd; the other two files are needed only for it.
    private func arm(_ bell: inout Bell, _ usage: Int) -> KernelError? {
        let event = kernel.makeEvent()
        guard event >= 0 else { return KernelError(number: -event) }
        bell.file = event
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

    func heardWarning(_ conditions: Int16, at now: Duration) { heard(&warning, conditions, at: now) }
    func heardCritical(_ conditions: Int16, at now: Duration) { heard(&critical, conditions, at: now) }
    func heardLast(_ conditions: Int16, at now: Duration) { heard(&last, conditions, at: now) }

    private func heard(_ bell: inout Bell, _ conditions: Int16, at now: Duration) {
        if conditions & Int16(POLLIN) != 0, kernel.drain(bell.file) > 0 {
            bell.rang(at: now, pause: Self.pause)
        } else {
            // Not ours any more: both are armed anew after a pause.
            failure = KernelError(number: EBADF)
            bell.file = -1
            disarm()
            warning.failed(at: now)
        }
    }
}
