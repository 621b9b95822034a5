import Plimsoll

// Rate-limited messages for people.
extension SupervisorLoop {
    /// Reports `line` about a unit. Counts the line instead if the unit caused many of that kind.
    func report(_ unit: ServiceUnit, _ line: String) {
        if complaints.admits(line, of: unit.name, at: now) { supervisor.tell("\(unit.name): \(line)") }
    }

    /// Reports the summaries of withheld lines whose window has ended.
    func tellWithheld(isOver: Bool = false) {
        for line in complaints.overdue(at: now, isOver: isOver) { supervisor.tell(line) }
    }

    // MARK: - Kept descriptors

    func keep(_ notice: NotifySocket.Notice, of run: UnitRun) {
        let message = notice.message
        if message.removesDescriptors, let name = message.descriptorName { run.store.remove(name) }
        guard message.storesDescriptors, !message.removesDescriptors, run.isOurs else { return }
        let kept = runs.values.map(\.store)
        let room = DescriptorStore.Room(
            count: DescriptorStore.mostOfAll - kept.reduce(0) { $0 + $1.kept.count },
            bytes: DescriptorStore.mostBytesOfAll - kept.reduce(.zero) { $0 + $1.memory })
        let refused = run.store.keep(notice.descriptors, name: message.descriptorName, room: room)
        guard refused > 0 else { return }
        report(
            run.unit,
            "\(refused) descriptors are not kept for it: a unit may have \(DescriptorStore.most) with \(DescriptorStore.mostBytes) of memory, "
                + "all units \(DescriptorStore.mostOfAll) with \(DescriptorStore.mostBytesOfAll)")
    }

    /// Limits the memory of descriptors kept for stopped units, which the kernel charges to no unit. Memory up to a
    /// unit's quota counts as the unit's own. At `critical`, all kept descriptors are closed before a unit is ended for
    /// memory.
    func shrinkStores(_ level: PressureLevel) {
        guard !options.policy.isDryRun else { return }
        for run in runs.values where run.state == .stopped && !run.store.kept.isEmpty {
            let (count, bytes) = run.store.shrink(to: level == .critical ? .zero : DescriptorStore.mostBytes)
            guard count > 0 else { continue }
            report(
                run.unit,
                "\(count) descriptors with \(bytes) of memory, kept for its next start, are closed: memory is \(level)")
            run.weigh()
        }
    }
}
