import Synchronization

/// The level in force, readable from any thread.
final class PublishedLevel: Sendable {
    // Relaxed: an independent value that orders no other memory access.
    private let bits = Atomic<UInt8>(PressureLevel.normal.rawValue)

    var level: PressureLevel { PressureLevel(rawValue: bits.load(ordering: .relaxed)) ?? .normal }

    /// Publishes `level`. Returns true if the level fell. Called by one thread.
    func publish(_ level: PressureLevel) -> Bool {
        let falls = level < self.level
        bits.store(level.rawValue, ordering: .relaxed)
        return falls
    }
}
