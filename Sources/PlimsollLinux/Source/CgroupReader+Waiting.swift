#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc
import Plimsoll

extension CgroupReader {
    /// The files polled during a wait.
    enum Slot: Int, CaseIterable { case wake, events, limits, warning, critical, last, trigger, announcement }

    /// Blocks until an event comes or the time has passed. May also end early without an event; the loop then makes one
    /// reading too many.
    func wait(atMost limit: Duration) {
        if shared.wakeup.take() { return }
        var nanoseconds = max(0, limit.inNanoseconds)
        if shared.wakeup.file < 0, wakeRepair.isOver(at: now) {
            wakeRepair.failed(at: now)
            if shared.wakeup.repair() { return }
        }
        slots[Slot.wake.rawValue] = pollfd(fd: shared.wakeup.file, events: Int16(POLLIN), revents: 0)
        // Without an eventfd the flag is checked periodically.
        if shared.wakeup.file < 0 { nanoseconds = min(nanoseconds, 50_000_000) }
        nanoseconds = min(nanoseconds, listen(.events, limitEvents?.eventSource))
        nanoseconds = min(nanoseconds, listen(.limits, limitWatch?.eventSource))
        nanoseconds = min(nanoseconds, listen(.warning, thresholds?.warning))
        nanoseconds = min(nanoseconds, listen(.critical, thresholds?.critical))
        nanoseconds = min(nanoseconds, listen(.last, thresholds?.last))
        nanoseconds = min(nanoseconds, listen(.trigger, stall.trigger?.eventSource))
        nanoseconds = min(nanoseconds, listen(.announcement, announcement.eventSource))

        let ready = kernel.wait(for: slots, nanoseconds: nanoseconds)
        if ready > 0 {
            handleEvents()
        } else if ready < 0 {
            // The kernel has no memory for a wait, or refuses to wait. Sleep without polling rather than spin.
            usleep(UInt32(min(nanoseconds, 10_000_000) / 1000))
        }
    }

    /// Adds an event source to the wait, unless the source rests. Returns the longest allowed wait, in nanoseconds.
    private func listen(_ slot: Slot, _ eventSource: EventSource?) -> Int64 {
        guard let eventSource else {
            slots[slot.rawValue] = pollfd(fd: -1, events: 0, revents: 0)
            return .max
        }
        slots[slot.rawValue] = pollfd(
            fd: eventSource.isPollable(at: now) ? eventSource.file : -1, events: eventSource.events, revents: 0)
        // A source in a short rest must be polled again before a long wait ends.
        guard let rest = eventSource.rest(at: now), rest <= .seconds(1) else { return .max }
        return max(1_000_000, rest.inNanoseconds)
    }

    /// Returns the conditions that a file of the last wait reported; `nil` for none.
    private func conditions(_ slot: Slot) -> Int16? {
        let found = slots[slot.rawValue]
        return found.fd >= 0 && found.revents != 0 ? found.revents : nil
    }

    private func handleEvents() {
        if let found = conditions(.wake), !shared.wakeup.handle(found) { wakeRepair.failed(at: now) }
        if let found = conditions(.events) { limitEvents?.handle(found, at: now) }
        if let found = conditions(.limits) {
            limitWatch?.handle(found, at: now)
            limitsReadAt = nil
        }
        if let found = conditions(.warning) { thresholds?.handleWarning(found, at: now) }
        if let found = conditions(.critical) { thresholds?.handleCritical(found, at: now) }
        if let found = conditions(.last) { thresholds?.handleLast(found, at: now) }
        if let found = conditions(.trigger) { stall.handle(found, at: now) }
        if let found = conditions(.announcement) { announcement.handle(found, at: now) }
    }
}
#endif
