import Synchronization

/// Ends the process before the kernel kills it: saves state, and prints one line that lists the purgeables and the
/// bytes they hold.
struct Ending {
    /// Exit status of a process that ended itself under pressure (`EX_TEMPFAIL`): the parent may start the process
    /// again.
    static let status: Int32 = 75

    let parts: ManagerParts
    let time: Timekeeper

    func end(within grace: Duration, after saturation: Duration, _ reading: PressureReading) {
        // The joined parts finish and background tasks end in parallel with the saves, within the same grace.
        let (joined, alarms, deadline, ended) = (parts.joined.all, parts.alarms, time.elapsed() + grace, Parker())
        let saving = Pause()
        parts.threads.run {
            let end = ManagerEnd(cause: .pressure, budget: grace) { limit in
                _ = await saving.wait(limit, on: alarms, heedsCancellation: false)
            }
            for part in joined { _ = await part.finish(end) }
            await parts.endTasks(allowsOwnEnd: false) { max(.zero, deadline - time.elapsed()) }
            ended.unpark()
        }
        let failures = parts.saves.run(within: grace, threads: parts.threads, time: time)
        saving.end(true)
        ended.park(atMost: max(.zero, deadline - time.elapsed()))
        parts.exit(Self.status, lastLine(saturation, reading, failures))
    }

    private func lastLine(_ saturation: Duration, _ reading: PressureReading, _ failures: [String]) -> String {
        var line = "plimsoll: ended after \(Int(saturation.inSeconds)) s of saturation: \(reading.usage) used"
        if let limit = reading.limit { line += " of \(limit)" }
        line += ", resident \(reading.resident)"
        let holders = parts.purgeables.snapshot.map { "\($0.name) \(ByteCount($0.held.load(ordering: .relaxed)))" }
        line += "; held: " + (holders.isEmpty ? "nothing registered" : holders.joined(separator: ", "))
        let tasks = parts.tasks.statuses.map(\.name)
        if !tasks.isEmpty { line += "; running: " + tasks.joined(separator: ", ") }
        if !failures.isEmpty { line += "; not saved: " + failures.joined(separator: ", ") }
        return line + "\n"
    }
}
