import Glibc
import Plimsoll

extension GroupObserver {
    /// The files a wait listens to.
    enum Slot: Int, CaseIterable { case wake, events, limits, warning, critical, last, trigger, announcement }

    /// Blocks until a bell rings or the time has passed. It may also end early for nothing; the loop then looks once more than it need.
    func wait(atMost limit: Duration) {
        if shared.wakeBell.take() { return }
        var nanoseconds = max(0, limit.inNanoseconds)
        if shared.wakeBell.file < 0, wakeRepair.isOver(at: now) {
            wakeRepair.failed(at: now)
            if shared.wakeBell.repair() { return }
        }
        slots[Slot.wake.rawValue] = pollfd(fd: shared.wakeBell.file, events: Int16(POLLIN), revents: 0)
        // Without an eventfd the flag is looked at now and then.
        if shared.wakeBell.file < 0 { nanoseconds = min(nanoseconds, 50_000_000) }
        nanoseconds = min(nanoseconds, listen(.events, limitEvents?.bell))
        nanoseconds = min(nanoseconds, listen(.limits, limitWatch?.bell))
        nanoseconds = min(nanoseconds, listen(.warning, thresholds?.warning))
        nanoseconds = min(nanoseconds, listen(.critical, thresholds?.critical))
        nanoseconds = min(nanoseconds, listen(.last, thresholds?.last))
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
        if let found = conditions(.last) { thresholds?.heardLast(found, at: now) }
        if let found = conditions(.trigger) { stall.heard(found, at: now) }
        if let found = conditions(.announcement) { announcement.heard(found, at: now) }
    }
}
