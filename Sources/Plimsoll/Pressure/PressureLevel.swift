import Synchronization

/// The shortage of memory.
public enum PressureLevel: UInt8, Sendable, Hashable, Comparable, CaseIterable, Codable {
    /// No shortage. Never a reason to purge (Nuke#392).
    case normal
    /// Release contents that are cheap to rebuild.
    case warning
    /// The next seconds decide: release as much as possible.
    case critical

    public static func < (left: PressureLevel, right: PressureLevel) -> Bool { left.rawValue < right.rawValue }

    /// The level below, or `normal`.
    var below: PressureLevel { PressureLevel(rawValue: rawValue == 0 ? 0 : rawValue - 1) ?? .normal }
}

extension PressureLevel {
    /// Returns the level with this name, as `description` gives the name; `nil` if there is none.
    package init?(name: some StringProtocol) {
        guard let level = Self.allCases.first(where: { $0.description == name }) else { return nil }
        self = level
    }
}

extension PressureLevel: CustomStringConvertible {
    public var description: String {
        switch self {
        case .normal: "normal"
        case .warning: "warning"
        case .critical: "critical"
        }
    }
}

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

/// A change of level, as delivered to observers.
public struct PressureEvent: Sendable, Hashable {
    /// Identifier of the event, the same on every route, so that no work is done twice (C78). Grows by one with each
    /// event.
    public var id: UInt64
    /// The level now in force.
    public var level: PressureLevel
    /// The level announced before.
    public var previous: PressureLevel
    /// Bytes to free to be clear of the line; zero if nothing need be freed.
    public var shortfall: Int
    /// Time until the limit at the present growth; `nil` if the limit isn't coming nearer.
    public var timeLeft: Duration?
    /// Reasons for the level.
    public var evidence: PressureEvidence
    /// True for a simulation: everything is done for real, but nothing is terminated.
    public var isSimulated: Bool { evidence.contains(.simulated) }
}

/// Decides which changes of level observers are notified of, and numbers them.
struct Announcer: Sendable {
    private(set) var announced = PressureLevel.normal
    /// The number of the last event; reports carry it.
    private(set) var lastID: UInt64 = 0
    /// The level withheld from observers because of a recent announcement.
    private(set) var withheld: PressureLevel?
    private var warnedAt: Duration?
    private var criticalAt: Duration?
    private let rest: Duration

    init(rest: Duration) { self.rest = rest }

    /// Returns the event to announce for `assessment`; `nil` if nothing changed or the level was announced within the
    /// resting time.
    mutating func event(for assessment: PressureAssessment) -> PressureEvent? {
        let level = assessment.level
        guard level != announced else {
            withheld = nil
            return nil
        }
        let before = level == .critical ? criticalAt : level == .warning ? warnedAt : nil
        // A simulation is requested, so its level is always announced.
        if let before, assessment.at - before < rest, !assessment.evidence.contains(.simulated) {
            withheld = level
            return nil
        }
        withheld = nil
        if level == .critical { criticalAt = assessment.at }
        if level == .warning { warnedAt = assessment.at }
        lastID += 1
        defer { announced = level }
        return PressureEvent(
            id: lastID, level: level, previous: announced, shortfall: assessment.shortfall.bytes,
            timeLeft: assessment.timeLeft,
            evidence: assessment.evidence)
    }
}
