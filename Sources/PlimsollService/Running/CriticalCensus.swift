import Plimsoll
import PlimsollHeap
import Synchronization

/// A census of the heap at the first `critical` of an episode, for the log and the black box.
///
/// The census runs on a thread of its own: observers of the level do not wait. A census is left out if the last one was
/// less than ten minutes ago, or if less memory is available than a census takes. A census for which no thread can be
/// started does not count.
final class CriticalCensus: Sendable {
    /// The least time between two censuses.
    static let rest = Duration.seconds(600)
    /// Memory that must be available: a census maps up to 8 MiB (`heap.memory`), and names the types.
    static let headroom = ByteCount.mebibytes(8)

    private let manager: ResourceManager
    private let log: ManagerLog
    private let take: @Sendable () throws -> HeapCensus
    private let clock: @Sendable () -> Duration
    private let startThread: Thread.Starter
    private let last = Mutex<Duration?>(nil)

    /// Creates a census that is logged to `log`.
    ///
    /// - Parameters:
    ///   - clock: any clock; only differences count.
    ///   - startThread: starts the thread of a census.
    init(
        _ manager: ResourceManager, _ log: ManagerLog,
        take: @escaping @Sendable () throws -> HeapCensus = { try HeapCensus.take() },
        clock: @escaping @Sendable () -> Duration = Timekeeper.running.elapsed,
        startThread: @escaping Thread.Starter = Thread.start
    ) {
        (self.manager, self.log, self.take, self.clock) = (manager, log, take, clock)
        self.startThread = startThread
    }

    /// Takes censuses until the registration is cancelled.
    func begin() -> Registration {
        manager.observe(from: .critical, "census") { [self] event in
            guard event.level == .critical, event.previous < .critical else { return }
            begin(room: manager.memoryStatus?.availableBytes)
        }
    }

    /// Starts a census, unless it is too soon or too tight for one.
    ///
    /// - Parameter room: available bytes, which clean page cache is part of; `nil` if unknown.
    func begin(room: Int?) {
        let now = clock()
        if let room, room < Self.headroom.bytes { return log.leavesOutCensus(ByteCount(max(0, room)), Self.headroom) }
        let isDue = last.withLock { last in
            if let last, now - last < Self.rest { return false }
            last = now
            return true
        }
        guard isDue else { return }
        let isStarted = startThread("plimsoll-census") { [self] in
            do {
                let census = try take()
                log.counted(census)
                manager.record(heap: census.recorded)
            } catch {
                log.cannot("take a census of the heap", "\(error)")
            }
        }
        guard !isStarted else { return }
        last.withLock { $0 = nil }
        log.cannot("take a census of the heap", "no thread can be started")
    }
}

extension HeapCensus {
    /// The types, largest first, for a record that outlives the process.
    var recorded: [RecordedCensus.Row] {
        rows.map { RecordedCensus.Row(name: $0.name, count: $0.count, bytes: $0.totalBytes) }
    }
}
