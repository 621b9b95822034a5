// Optional data of a slot: tags, times and pins.
extension CacheTable {
    /// Reserves room for the optional data of `slot`, which has never been in use.
    @inline(never)
    mutating func reserveExtras(_ slot: UInt32) {
        costs.reserve(slot)
        tagged.reserve(slot)
        tagged.set(slot, TagIndex.none)
        times.reserve(slot)
        times.set(slot, SlotTimes())
    }

    /// Removes the optional data of `slot`.
    @inline(never)
    mutating func removeExtras(_ slot: UInt32) {
        if tagged.isUsed { untag(slot) }
        if wheel.isUsed { wheel.remove(slot, &times) }
        if !pins.isEmpty { pins[slot] = nil }
    }

    func isUsed(_ slot: UInt32) -> Bool { node(slot).pointee.queue != .free }

    /// Sets the tags of the entry in `slot`.
    @usableFromInline
    mutating func tag(_ slot: UInt32, _ names: [String]) {
        isPlain = false
        tagged.use(top, filledWith: TagIndex.none)
        tagged.set(slot, tags.add(Int32(slot), names))
    }

    /// Updates cost, tags and times after another entry came into `slot` under the same key.
    @usableFromInline
    mutating func replaced(_ slot: UInt32, cost: Int, _ names: [String]) {
        let old = self.cost(of: slot)
        set(slot, cost: cost)
        withQueue(node(slot).pointee.queue) { $0.cost += cost - old }
        untag(slot)
        if !names.isEmpty { tag(slot, names) }
        guard wheel.isUsed else { return }
        wheel.remove(slot, &times)
        times.set(slot, SlotTimes())
    }

    // MARK: Time

    /// Sets the deadlines of `slot`.
    @usableFromInline
    mutating func setTimes(_ slot: UInt32, _ new: SlotTimes, at now: Int64) {
        isPlain = false
        wheel.use(at: now)
        times.use(top, filledWith: SlotTimes())
        wheel.remove(slot, &times)
        times.set(slot, new)
        wheel.add(slot, &times)
    }

    /// Returns true if the entry in `slot` has not expired. If so, counts a use now, and moves the idle deadline to
    /// `idleTime` from now.
    @usableFromInline
    mutating func isFresh(_ slot: UInt32, at now: Int64, idleTime: Int64?) -> Bool {
        guard times.isUsed else { return true }
        var own = times[slot]
        if own.deadline <= now { return false }
        if let idleTime {
            let (sum, overflow) = now.addingReportingOverflow(idleTime)
            own.idles = overflow ? .max : sum
            times.set(slot, own)
        }
        return true
    }

    /// Unlists an expired slot, which the caller must still empty and hand to `discard`. Returns `nil` if none is
    /// found soon.
    @usableFromInline
    mutating func expire(at now: Int64) -> UInt32? {
        guard let slot = wheel.due(at: now, &times) else { return nil }
        remove(slot)
        return slot
    }

    mutating func untag(_ slot: UInt32) {
        guard tagged[slot] != TagIndex.none else { return }
        tags.remove(tagged[slot])
        tagged.set(slot, TagIndex.none)
    }
}
