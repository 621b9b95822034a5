import Synchronization

/// The pressure loop's looks at the limit: a change of it becomes a change of the environment, and the way back can have the loop look once more.
///
/// The loop pays two atomic operations a look, and allocates nothing unless the limit has moved.
final class LimitLook: Sendable {
    /// The last limit, or `unknown`. Relaxed: only the loop uses it.
    private let last = Atomic<Int>(unknown)
    /// Looks since the loop began; 0 while it does not run. Released with the change that was posted before, and acquired by who asks.
    private let looks = Atomic<UInt64>(0)
    private let isAsked = Atomic<Bool>(false)
    private let asking = Mutex<Parker?>(nil)
    private let wakeLoop: @Sendable () -> Void

    private static let unknown = -1

    init(wakeLoop: @escaping @Sendable () -> Void) { self.wakeLoop = wakeLoop }

    /// On the loop: takes down what it has seen.
    func noticed(_ limit: ByteCount?, post: (EnvironmentChange) -> Void) {
        let bytes = limit?.bytes ?? .max
        let before = last.exchange(bytes, ordering: .relaxed)
        if before != bytes, before != Self.unknown { post(EnvironmentChange(.limit, from: Self.value(before), to: Self.value(bytes))) }
        looks.wrappingAdd(1, ordering: .releasing)
        if isAsked.load(ordering: .acquiring) { asking.withLock { $0 }?.unpark() }
    }

    /// On the loop: it looks no more.
    func ended() {
        looks.store(0, ordering: .releasing)
        asking.withLock { $0 }?.unpark()
    }

    private static func value(_ bytes: Int) -> EnvironmentValue { bytes == .max ? .absent : .size(ByteCount(bytes)) }

    /// Has the loop look, and `parker` unparked at each look.
    ///
    /// - Returns: the number of looks after which the limit is as fresh as this call; `nil` if the loop does not run.
    func ask(_ parker: Parker) -> UInt64? {
        let now = looks.load(ordering: .acquiring)
        guard now > 0 else { return nil }
        asking.withLock { $0 = parker }
        isAsked.store(true, ordering: .sequentiallyConsistent)
        wakeLoop()
        // The look under way may have read before; the one after that has not.
        return now + 2
    }

    /// Whether that many looks have been; asks for more if not.
    func isAnswered(_ look: UInt64?) -> Bool {
        guard let look, isAsked.load(ordering: .acquiring) else { return true }
        let now = looks.load(ordering: .acquiring)
        if now == 0 || now >= look { return true }
        wakeLoop()
        return false
    }

    /// Nobody waits for a look any more.
    func stopAsking() {
        isAsked.store(false, ordering: .releasing)
        asking.withLock { $0 = nil }
    }
}
