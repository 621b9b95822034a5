import Plimsoll

// Rate-limited messages for people.
extension SupervisorLoop {
    /// Reports `line` about a unit. Counts the line instead if the unit caused many of that kind.
    func report(_ unit: ServiceUnit, _ line: String) {
        if complaints.admits(line, of: unit.name, at: now) { supervisor.report("\(unit.name): \(line)") }
    }

    /// Reports the summaries of withheld lines whose window has ended.
    func reportWithheld(isOver: Bool = false) {
        for line in complaints.overdue(at: now, isOver: isOver) { supervisor.report(line) }
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
            "refused to keep \(refused) descriptors: a unit may have \(DescriptorStore.most) with \(DescriptorStore.mostBytes) of memory, "
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
                "closed \(count) descriptors with \(bytes) of memory, kept for the next start: memory is \(level)")
            run.weigh()
        }
    }
}

/// A limiter for the log lines about a unit. The first few of each kind are reported, and then the number of the rest
/// once per window. The behaviour of a unit's processes must neither fill a disk nor bury important lines.
struct ComplaintPacer {
    /// The maximum number of lines per kind and window.
    static let burst = 5
    static let window = Duration.seconds(30)
    /// The maximum number of kinds tracked at once; all further kinds count as one.
    static let mostKinds = 1024

    /// A unit, and one of its lines with the digits removed.
    private struct Kind: Hashable {
        let unit: String
        let text: String
    }

    private struct Tally {
        let since: Duration
        var notified = 0
        var withheld = 0
        var last = ""
    }

    private var tallies: [Kind: Tally] = [:]

    /// The end of the first window in which lines were withheld; `nil` if none were.
    private(set) var nextDue: Duration?

    /// Returns true if `line` of `unit` is to be reported now. Otherwise counts the line.
    mutating func admits(_ line: String, of unit: String, at now: Duration) -> Bool {
        var kind = Kind(unit: unit, text: String(line.prefix(200).filter { !$0.isNumber }))
        if tallies[kind] == nil, tallies.count >= Self.mostKinds { kind = Kind(unit: "", text: "") }
        if let tally = tallies[kind], tally.withheld == 0, now - tally.since >= Self.window { tallies[kind] = nil }
        var tally = tallies[kind] ?? Tally(since: now)
        defer { tallies[kind] = tally }
        if tally.notified < Self.burst {
            tally.notified += 1
            return true
        }
        tally.withheld += 1
        tally.last = line
        let due = tally.since + Self.window
        nextDue = min(nextDue ?? due, due)
        return false
    }

    /// Returns summaries of the lines withheld in windows that have ended. Includes open windows if `isOver` is true.
    mutating func overdue(at now: Duration, isOver: Bool = false) -> [String] {
        guard isOver || nextDue.map({ now >= $0 }) ?? false else { return [] }
        var lines: [String] = []
        nextDue = nil
        for (kind, tally) in tallies {
            let due = tally.since + Self.window
            if isOver || now >= due {
                tallies[kind] = nil
                let unit = kind.unit.isEmpty ? "units" : kind.unit
                if tally.withheld > 0 {
                    lines.append("\(unit): withheld \(tally.withheld) more lines like this: \(tally.last)")
                }
            } else if tally.withheld > 0 {
                nextDue = min(nextDue ?? due, due)
            }
        }
        return lines
    }
}
