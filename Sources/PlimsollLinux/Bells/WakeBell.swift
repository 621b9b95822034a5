import Glibc
import Synchronization

/// Lets any thread end a wait.
///
/// The flag alone would do but for a thread already blocked, the eventfd alone but for a process out of files.
final class WakeBell: Sendable {
    private let kernel: any Kernel
    /// The eventfd, or -1. Relaxed is enough: whoever sees an old number leaves the flag, and the wait is short while there is no file.
    private let event: Atomic<Int32>
    /// Acquired and released with what the waker wrote before.
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

    /// From any thread: ends the present wait, or else the next.
    func ring() {
        // A second ring before the first is heard says nothing new.
        guard !isPending.exchange(true, ordering: .acquiringAndReleasing) else { return }
        let file = event.load(ordering: .relaxed)
        guard file >= 0 else { return }
        withUnsafeTemporaryAllocation(of: UInt8.self, capacity: 8) { one in
            one.initialize(repeating: 0)
            withUnsafeBytes(of: UInt64(1)) { number in for offset in 0..<8 { one[offset] = number[offset] } }
            // Who waits without end is lost without this; a second failure means that the file is gone.
            if kernel.write(file, UnsafeBufferPointer(one)) < 0 { _ = kernel.write(file, UnsafeBufferPointer(one)) }
        }
    }

    // Clearing up, the eventfd comes first and the flag second. The other way round, a ring in between would leave the flag set and the eventfd empty:
    // every later ring would take it for said already, and a thread that waits without end would never hear again.

    /// On the waiting thread: whether it has been rung since the last time.
    func take() -> Bool {
        guard isPending.load(ordering: .acquiring) else { return false }
        let file = event.load(ordering: .relaxed)
        if file >= 0 { _ = kernel.drain(file) }
        _ = isPending.exchange(false, ordering: .acquiringAndReleasing)
        return true
    }

    /// On the waiting thread, when the eventfd was ready: silences it. False if it is broken, and not used any more.
    func heard(_ conditions: Int16) -> Bool {
        if conditions & Int16(POLLNVAL) == 0, kernel.drain(event.load(ordering: .relaxed)) > 0 {
            _ = isPending.exchange(false, ordering: .acquiringAndReleasing)
            return true
        }
        // Somebody closed all files of the process. Whoever has that number now keeps it.
        event.store(-1, ordering: .relaxed)
        return false
    }

    /// On the waiting thread: makes the eventfd if there is none.
    ///
    /// - Returns: whether it has been rung since the last time; then there is nothing to wait for.
    @discardableResult
    func repair() -> Bool {
        event.store(max(-1, kernel.makeEvent()), ordering: .relaxed)
        // Who rings from here on finds the new one; who has rung before is heard now.
        return isPending.exchange(false, ordering: .acquiringAndReleasing)
    }
}
