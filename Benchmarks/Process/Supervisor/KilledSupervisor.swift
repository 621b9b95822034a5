import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollSupervisor
import PlimsollTesting

/// Kills the supervisor in the middle of work, again and again: no unit may stay frozen.
struct KilledSupervisor {
    let signals: SignalQueue

    func measure(runs: Int) throws {
        var random = SeededGenerator(seed: 1), longest = Duration.zero, frozen = 0
        for _ in 1...runs {
            let (wasFrozen, frozenFor) = try ScratchDirectory.with("killed") { directory in
                let trio = try Trio(limit: .mebibytes(256), directory: directory, maker: GroupMaker(), signals: signals)
                // Counted from the first action: some kills hit a watching supervisor, most hit an acting one.
                return try trio.killSupervisor(after: .milliseconds(Int.random(in: 0...600, using: &random)))
            }
            frozen += wasFrozen ? 1 : 0
            longest = max(longest, frozenFor)
        }
        Output.line("# the supervisor killed \(runs) times (seed 1), \(frozen) times while a unit was suspended")
        Output.line("figure supervisor.killed.frozen-longest \(Text.number(longest.inSeconds, decimals: 3)) s")
    }
}

extension Trio {
    /// Freezes all units, and kills the supervisor `delay` after its first step at a critical level. The guard must
    /// thaw the units at any moment of the kill.
    ///
    /// The freezing is done here, as the supervisor itself freezes units only for some milliseconds before it ends
    /// them.
    ///
    /// - Returns: true if a unit was frozen at the kill, and the time from the kill until the last one ran again.
    func killSupervisor(after delay: Duration) throws -> (wasFrozen: Bool, frozenFor: Duration) {
        defer { cleanUp() }
        try startSupervisor()
        let deadline = SteadyClock.now + .seconds(20)
        while !record.audits.contains(where: { $0.action == .background }) {
            guard SteadyClock.now < deadline else { throw Failure.failed("memory did not become critical") }
            try poll()
            SteadyClock.sleep(.milliseconds(2))
        }
        SteadyClock.sleep(delay)
        record.isOver = true
        freezeUnits()
        while !isAnyFrozen, SteadyClock.now < deadline { SteadyClock.sleep(.milliseconds(1)) }
        let wasFrozen = isAnyFrozen
        supervisor?.signal(SIGKILL)
        let killed = SteadyClock.now
        var last = killed
        while SteadyClock.now < killed + .seconds(8) {
            if isAnyFrozen { last = SteadyClock.now } else if SteadyClock.now > killed + .seconds(1) { break }
            SteadyClock.sleep(.milliseconds(1))
        }
        return (wasFrozen, last - killed)
    }

    /// True if the kernel still holds a member frozen.
    private var isAnyFrozen: Bool {
        Self.members.contains { member in
            ControlFile.number(freezerDirectory(of: member.name) + "/cgroup.events", key: "frozen") == 1
        }
    }

    private func freezeUnits() {
        for member in Self.members {
            try? ControlFile.write("1", to: freezerDirectory(of: member.name) + "/cgroup.freeze")
        }
    }
}
