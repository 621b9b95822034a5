import Synchronization

/// A recorder of the pressure loop's turns, such as a flight recorder in a file that outlives the process.
package protocol TurnRecorder: AnyObject, Sendable {
    /// Called by the pressure loop at the end of each turn. Must neither block nor allocate.
    func record(_ turn: RecordedTurn)

    /// Called when the objects on the heap were counted, on a thread that may block.
    func record(_ census: RecordedCensus)

    /// Called when the process ends in good order, on any thread. Must not block.
    func ended(_ end: RecordedEnd)
}

/// The kind of an end in good order.
package enum RecordedEnd: UInt8, Sendable {
    /// The manager was stopped, and the shutdown is over.
    case shutdown = 1
    /// The rung `terminate` of the ladder ends the process because memory is short.
    case pressure = 2
}

/// The largest types of objects on the heap at one time.
package struct RecordedCensus: Sendable, Equatable {
    package struct Row: Sendable, Equatable {
        package var name: String
        package var count: Int
        /// Bytes of the objects and of what they own.
        package var bytes: Int

        package init(name: String, count: Int, bytes: Int) {
            (self.name, self.count, self.bytes) = (name, count, bytes)
        }
    }

    /// Time on the manager's clock.
    package var at: Duration
    /// The largest first.
    package var rows: [Row]

    package init(at: Duration, rows: [Row]) { (self.at, self.rows) = (at, rows) }
}

/// The evidence on the end of a previous run.
package enum PreviousEnd: Sendable, Equatable {
    /// The process ended in good order.
    case clean
    /// The kernel killed the process, or is likely to have, because memory was short.
    case outOfMemory
    /// The process was killed, crashed, or ended without stopping its manager.
    case unknown
}

/// One turn of the pressure loop, with access to what the manager knows. No access allocates.
package struct RecordedTurn {
    package let reading: PressureReading
    package let assessment: PressureAssessment
    /// Time of day, since 1970.
    package let wall: Duration
    private let parts: ManagerParts

    init(_ reading: PressureReading, _ assessment: PressureAssessment, _ parts: ManagerParts) {
        (self.reading, self.assessment, self.parts) = (reading, assessment, parts)
        wall = parts.time.wall()
    }

    /// True if actions are only decided and reported.
    package var isDryRun: Bool { parts.isDryRun.load(ordering: .relaxed) }

    /// Number of running background tasks, those of scenes excluded. Takes the lock of each shard.
    package var runningTasks: Int { parts.tasks.count }

    /// Calls `body` with each report that was added after the first `count` reports, at most the 256 last, and sets
    /// `count` to the number of all reports.
    package func eachReport(after count: inout Int, _ body: (ActionReport) -> Void) {
        parts.journal.each(after: &count, body)
    }

    /// Calls `body` with the name and the held bytes of each registered purgeable.
    ///
    /// The caches of this library are asked. Other purgeables are application code, which may block, so their last
    /// answer counts.
    package func eachHolder(_ body: (_ name: String, _ bytes: Int, _ isVolatile: Bool) -> Void) {
        let entries = parts.purgeables.snapshot
        var index = 0
        while index < entries.count {
            let entry = entries[index]
            body(entry.name, entry.lastHeld, entry.volatile != nil)
            index += 1
        }
    }

    /// Calls `body` with the name and the held bytes of each request with a budget that holds more than `least`.
    package func eachRequest(above least: ByteCount, _ body: (_ name: String, _ bytes: Int) -> Void) {
        parts.requests.each(above: least, body)
    }
}

extension PurgeableRegistry.Entry {
    /// The held bytes: of a prompt purgeable now, of another one at its last answer.
    fileprivate var lastHeld: Int {
        isPrompt ? min(max(0, purgeable.heldBytes), ReleasePass.mostHeld) : held.load(ordering: .relaxed)
    }
}

extension ResourceManager {
    /// Records the turns of this manager in `recorder`. Call before `run()`; a later call has no effect.
    package func record(in recorder: any TurnRecorder) { _ = parts.recorder.withLock { exchange(&$0, recorder) } }

    /// Records a census of the heap that was taken just now, if the turns are recorded.
    package func record(heap rows: [RecordedCensus.Row]) {
        parts.recorder.withLock { $0 }?.record(RecordedCensus(at: parts.time.elapsed(), rows: rows))
    }
}
