import Glibc

/// Reports at once that a limit was changed.
///
/// The kernel has no event for this (K18). But a write to `memory.max` goes through `vfs_write` (fs/read_write.c),
/// which notifies inotify, for control files as for any other. If usage is below the new limit, there is time to react.
/// Usage above the new limit was killed within that very write.
final class LimitWatch {
    /// Limits the wake-ups caused by a process that writes in a loop.
    static let pause = Duration.milliseconds(10)

    private(set) var bell = Bell(POLLIN)
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
        bell.file = watch
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
        if failure != nil { bell.closed(kernel) }
    }

    deinit { bell.closed(kernel) }

    var isLive: Bool { bell.file >= 0 }

    func heard(_ conditions: Int16, at now: Duration) {
        if conditions & Int16(POLLIN) != 0, kernel.drain(bell.file) > 0 {
            bell.rang(at: now, pause: Self.pause)
        } else {
            failure = KernelError(number: EBADF)
            bell.file = -1
        }
    }
}
