import Glibc

/// Tells at once that somebody moved a limit.
///
/// No event of the kernel's says so (K18), but whoever writes to `memory.max` goes through `vfs_write` (fs/read_write.c), which tells inotify, for
/// control files as for any other. What is below the new limit then has all the time there is; usage above it was killed within that very write.
final class LimitWatch {
    /// Somebody who writes in a loop must not turn ours.
    static let pause = Duration.milliseconds(10)

    private(set) var bell = Bell(POLLIN)
    /// Why it is not armed.
    private(set) var failure: KernelError?
    private let kernel: any Kernel

    /// Watches the limits of `level` and all above it.
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
                // A kernel without memory.high has nothing there to be moved.
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
