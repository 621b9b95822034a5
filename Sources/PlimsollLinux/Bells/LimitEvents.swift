import Glibc
import Plimsoll

/// How often a group met its limits, and the bell that rings when it does: the one event that every container has (version 2).
///
/// `memory.events` reports `POLLERR | POLLPRI` on each change and until it is read (K9); whether it lives is known by reading it.
/// Wake-ups are merged by the kernel, so counts are read and compared, never wake-ups counted (K26).
final class LimitEvents {
    /// Page cache going round at the limit changes the counts all the time (K24): ten looks a second are enough for that.
    static let pause = Duration.milliseconds(100)

    private(set) var bell = Bell(POLLPRI)
    /// The last counts; `nil` if they can't be read.
    private(set) var counts: PressureReading.EventCounts?
    let directory: String
    private let version: ControlGroup.Version
    /// `memory.events`, or version 1's `memory.failcnt`.
    let file: KernelFile
    /// Version 1's `memory.oom_control`.
    private let oomControl: KernelFile
    private var readAt: Duration?

    /// The events of the group in `directory`.
    init(_ directory: String, _ version: ControlGroup.Version, _ kernel: any Kernel, _ buffer: TextBuffer) {
        self.directory = directory
        self.version = version
        file = KernelFile(directory + (version == .v1 ? "/memory.failcnt" : "/memory.events"), kernel, buffer)
        oomControl = KernelFile(directory + "/memory.oom_control", kernel, buffer)
    }

    /// Whether changes end a wait. In version 1 they don't.
    var isBellLive: Bool { bell.file >= 0 && counts != nil }

    /// The counts, read again once a second and after each ring.
    func counts(at now: Duration) -> PressureReading.EventCounts? {
        guard readAt.isDue(after: .seconds(1), at: now) else { return counts }
        readAt = now
        switch version {
        case .v2:
            counts = file.read { PressureReading.EventCounts($0) }
            // The bell and the text are one file, so that reading it silences the bell. The file may have been opened anew.
            bell.file = file.file
            if counts == nil { bell.failed(at: now) }
        case .v1:
            counts = file.read(KernelText.bytes).map { failures in
                .init(max: failures, oomKill: oomControl.read { PressureReading.EventCounts.oomKills($0) } ?? 0)
            }
        }
        return counts
    }

    /// The file was ready.
    func heard(_ conditions: Int16, at now: Duration) {
        readAt = nil
        if conditions & Int16(POLLNVAL) != 0 {
            file.forget()
            bell.file = -1
            bell.failed(at: now)
        } else {
            bell.rang(at: now, pause: Self.pause)
        }
    }
}
