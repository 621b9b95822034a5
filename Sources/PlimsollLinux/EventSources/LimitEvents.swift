#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc
import Plimsoll

/// Counts of a group's limit events, and the event source that reports them: the one event that every container has
/// (version 2).
///
/// `memory.events` reports `POLLERR | POLLPRI` on each change and until it is read (K9). Only reading tells if the file
/// still works. The kernel merges wake-ups, so the counts are compared, and wake-ups are never counted (K26).
final class LimitEvents {
    /// Page cache turning over at the limit changes the counts all the time (K24). Ten readings a second are enough for
    /// that.
    static let pause = Duration.milliseconds(100)

    private(set) var eventSource = EventSource(POLLPRI)
    /// The last counts; `nil` if they can't be read.
    private(set) var counts: PressureReading.EventCounts?
    let directory: String
    private let version: ControlGroup.Version
    /// `memory.events`, or version 1's `memory.failcnt`.
    let file: KernelFile
    /// Version 1's `memory.oom_control`.
    private let oomControl: KernelFile
    private var readAt: Duration?

    /// Creates a reader for the events of the group in `directory`.
    init(_ directory: String, _ version: ControlGroup.Version, _ kernel: any Kernel, _ buffer: TextBuffer) {
        self.directory = directory
        self.version = version
        file = KernelFile(directory + (version == .v1 ? "/memory.failcnt" : "/memory.events"), kernel, buffer)
        oomControl = KernelFile(directory + "/memory.oom_control", kernel, buffer)
    }

    /// True if changes end a wait. In version 1 they don't.
    var isWakeupLive: Bool { eventSource.file >= 0 && counts != nil }

    /// Returns the counts, read again once a second and after each event.
    func counts(at now: Duration) -> PressureReading.EventCounts? {
        guard readAt.isDue(after: .seconds(1), at: now) else { return counts }
        readAt = now
        switch version {
        case .v2:
            counts = file.read { PressureReading.EventCounts($0) }
            // The event source and the text are one file, so reading the text clears the event. The file may have been
            // reopened.
            eventSource.file = file.file
            if counts == nil { eventSource.failed(at: now) }
        case .v1:
            counts = file.read(KernelText.bytes).map { failures in
                .init(max: failures, oomKill: oomControl.read { PressureReading.EventCounts.oomKills($0) } ?? 0)
            }
        }
        return counts
    }

    /// Handles readiness of the file.
    func handle(_ conditions: Int16, at now: Duration) {
        readAt = nil
        if conditions & Int16(POLLNVAL) != 0 {
            file.forget()
            eventSource.file = -1
            eventSource.failed(at: now)
        } else {
            eventSource.rang(at: now, pause: Self.pause)
        }
    }
}

/// Reports at once that a limit was changed.
///
/// The kernel has no event for this (K18). But a write to `memory.max` goes through `vfs_write` (fs/read_write.c),
/// which notifies inotify, for control files as for any other. If usage is below the new limit, there is time to react.
/// Usage above the new limit was killed within that very write.
final class LimitWatch {
    /// Limits the wake-ups caused by a process that writes in a loop.
    static let pause = Duration.milliseconds(10)

    private(set) var eventSource = EventSource(POLLIN)
    /// The reason that the watch is not armed.
    private(set) var failure: KernelError?
    private let kernel: any Kernel

    /// Watches the limits of `level` and of all levels above.
    init(from level: LimitLevel, _ kernel: any Kernel) {
        self.kernel = kernel
        let watch = kernel.makeWatch()
        guard watch >= 0 else {
            failure = KernelError(number: -watch)
            return
        }
        eventSource.file = watch
        var next: LimitLevel? = level
        while let level = next {
            next = level.parent
            for file in [level.maximumFile, level.highFile] {
                guard let path = file?.path else { continue }
                let result = kernel.watchWrites(to: path, watch)
                // A kernel without memory.high has no such file to watch.
                if result < 0, result != -ENOENT { failure = KernelError(number: -result) }
            }
        }
        if failure != nil { eventSource.closed(kernel) }
    }

    deinit { eventSource.closed(kernel) }

    var isLive: Bool { eventSource.file >= 0 }

    func handle(_ conditions: Int16, at now: Duration) {
        if conditions & Int16(POLLIN) != 0, kernel.drain(eventSource.file) > 0 {
            eventSource.rang(at: now, pause: Self.pause)
        } else {
            failure = KernelError(number: EBADF)
            eventSource.file = -1
        }
    }
}
#endif
