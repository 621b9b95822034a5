import Glibc
import Plimsoll
import PlimsollSupervisor
import PlimsollTesting

/// The supervisor killed in the middle of what it does, again and again: nobody may stay frozen.
struct KilledSupervisor {
    let signals: SignalQueue

    func measure(runs: Int) throws {
        var random = SeededGenerator(seed: 1), longest = Duration.zero, frozen = 0
        for _ in 1...runs {
            let (wasFrozen, stood) = try ScratchDirectory.with("killed") { directory in
                let trio = try Trio(limit: .mebibytes(256), directory: directory, maker: GroupMaker(), signals: signals)
                // From when it is at work: some while it looks on, most while it acts.
                return try trio.killSupervisor(after: .milliseconds(Int.random(in: 0...600, using: &random)))
            }
            frozen += wasFrozen ? 1 : 0
            longest = max(longest, stood)
        }
        Output.line("# the supervisor killed \(runs) times (seed 1), \(frozen) times while a unit stood still")
        Output.line("figure supervisor.killed.frozen-longest \(Text.number(longest.inSeconds, decimals: 3)) s")
    }
}

extension Trio {
    /// Has all units stand still, and kills the supervisor that long after its first step at a critical level: whatever it was doing, they are set free.
    ///
    /// The freezing is done here, as the supervisor itself has units stand still for some milliseconds only before it ends them.
    ///
    /// - Returns: whether a unit was frozen then, and how long after the kill the last one ran again.
    func killSupervisor(after delay: Duration) throws -> (wasFrozen: Bool, stood: Duration) {
        defer { cleanUp() }
        try startSupervisor()
        let deadline = SteadyClock.now + .seconds(20)
        while !record.audits.contains(where: { $0.action == .background }) {
            guard SteadyClock.now < deadline else { throw Failure.failed("memory has not become critical") }
            try look()
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

    private func freezeUnits() {
        for member in Self.members { try? ControlFile.write("1", to: freezerDirectory(of: member.name) + "/cgroup.freeze") }
    }
}
