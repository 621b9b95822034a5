#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc
import Synchronization

/// A wake-up: lets any thread end a wait.
///
/// The flag alone can't wake a thread that is already blocked. The eventfd alone fails in a process without free file
/// descriptors.
final class Wakeup: Sendable {
    private let kernel: any Kernel
    /// The eventfd, or -1. Relaxed is enough: a thread that sees an old number still sets the flag, and waits are short
    /// without an eventfd.
    private let event: Atomic<Int32>
    /// Acquired and released with the waker's earlier writes.
    private let isPending = Atomic<Bool>(false)

    init(_ kernel: any Kernel) {
        self.kernel = kernel
        event = Atomic(max(-1, kernel.makeEvent()))
    }

    deinit {
        let file = event.load(ordering: .relaxed)
        if file >= 0 { kernel.close(file) }
    }

    /// The eventfd to poll, or -1.
    var file: Int32 { event.load(ordering: .relaxed) }

    /// Ends the present wait, or else the next. From any thread.
    func ring() {
        // A second wake-up before the first is handled adds nothing.
        guard !isPending.exchange(true, ordering: .acquiringAndReleasing) else { return }
        let file = event.load(ordering: .relaxed)
        guard file >= 0 else { return }
        withUnsafeTemporaryAllocation(of: UInt8.self, capacity: 8) { one in
            one.initialize(repeating: 0)
            withUnsafeBytes(of: UInt64(1)) { number in for offset in 0..<8 { one[offset] = number[offset] } }
            // Without this wake-up a wait without timeout would never end. A second failure means that the file is
            // gone.
            if kernel.write(file, UnsafeBufferPointer(one)) < 0 { _ = kernel.write(file, UnsafeBufferPointer(one)) }
        }
    }

    // Clear the eventfd first and the flag second. In the other order, a wake-up in between would leave the flag set
    // and the eventfd empty. Every later wake-up would return early at the flag, and a wait without timeout would never
    // end.

    /// Clears the wake-up. Returns true if there was one since the last time. On the waiting thread.
    func take() -> Bool {
        guard isPending.load(ordering: .acquiring) else { return false }
        let file = event.load(ordering: .relaxed)
        if file >= 0 { _ = kernel.drain(file) }
        _ = isPending.exchange(false, ordering: .acquiringAndReleasing)
        return true
    }

    /// Clears the eventfd when it was ready. Returns false if the eventfd is broken and not used any more. On the
    /// waiting thread.
    func handle(_ conditions: Int16) -> Bool {
        if conditions & Int16(POLLNVAL) == 0, kernel.drain(event.load(ordering: .relaxed)) > 0 {
            _ = isPending.exchange(false, ordering: .acquiringAndReleasing)
            return true
        }
        // Some code closed all files of the process. The number may belong to another file now, so do not close it.
        event.store(-1, ordering: .relaxed)
        return false
    }

    /// Clears the wake-up after a wait in which the eventfd had these conditions, and replaces a broken eventfd. On the
    /// waiting thread.
    func waited(_ conditions: Int16) {
        if conditions == 0 {
            _ = take()
        } else if !handle(conditions) {
            repair()
        }
    }

    /// Makes the eventfd if there is none. On the waiting thread.
    ///
    /// - Returns: true if there was a wake-up since the last time; then there is nothing to wait for.
    @discardableResult
    func repair() -> Bool {
        event.store(max(-1, kernel.makeEvent()), ordering: .relaxed)
        // Later wake-ups find the new eventfd; earlier ones are handled now.
        return isPending.exchange(false, ordering: .acquiringAndReleasing)
    }
}
#endif
