import Plimsoll
import Synchronization

/// The pressure loop's readings of the memory limit.
///
/// A changed limit becomes an `EnvironmentChange`. On the way back from a gap, `Environment` can request another
/// reading. The loop pays two atomic operations a reading, and allocates only if the limit has changed.
final class LimitCheck: Sendable {
    /// The last limit, or `unknown`. Relaxed: only the loop uses this value.
    private let last = Atomic<Int>(unknown)
    /// Number of readings since the loop began; 0 while the loop does not run. The loop releases with each reading;
    /// callers that ask acquire. So they see the change that was posted before.
    private let readings = Atomic<UInt64>(0)
    private let isAsked = Atomic<Bool>(false)
    private let asking = Mutex<Parker?>(nil)
    private let wakeLoop: @Sendable () -> Void

    private static let unknown = -1

    init(wakeLoop: @escaping @Sendable () -> Void) { self.wakeLoop = wakeLoop }

    /// Records a reading. Called on the loop.
    func noticed(_ limit: ByteCount?, post: (EnvironmentChange) -> Void) {
        let bytes = limit?.bytes ?? .max
        let before = last.exchange(bytes, ordering: .relaxed)
        if before != bytes, before != Self.unknown {
            post(EnvironmentChange(.limit, from: Self.value(before), to: Self.value(bytes)))
        }
        readings.wrappingAdd(1, ordering: .releasing)
        if isAsked.load(ordering: .acquiring) { asking.withLock { $0 }?.unpark() }
    }

    /// Marks the loop as ended: no reading follows. Called on the loop.
    func ended() {
        readings.store(0, ordering: .releasing)
        asking.withLock { $0 }?.unpark()
    }

    private static func value(_ bytes: Int) -> EnvironmentValue { bytes == .max ? .absent : .size(ByteCount(bytes)) }

    /// Requests a reading, and has `parker` unparked at each reading.
    ///
    /// - Returns: the number of readings after which the limit is as fresh as this call; `nil` if the loop does not
    ///   run.
    func ask(_ parker: Parker) -> UInt64? {
        let now = readings.load(ordering: .acquiring)
        guard now > 0 else { return nil }
        asking.withLock { $0 = parker }
        isAsked.store(true, ordering: .sequentiallyConsistent)
        wakeLoop()
        // The reading under way may have read the limit before this call. The one after has not.
        return now + 2
    }

    /// Returns true if reading number `reading` has been made; requests another one if not.
    func isAnswered(_ reading: UInt64?) -> Bool {
        guard let reading, isAsked.load(ordering: .acquiring) else { return true }
        let now = readings.load(ordering: .acquiring)
        if now == 0 || now >= reading { return true }
        wakeLoop()
        return false
    }

    /// Ends the request: no thread waits for a reading any more.
    func stopAsking() {
        isAsked.store(false, ordering: .releasing)
        asking.withLock { $0 = nil }
    }
}
