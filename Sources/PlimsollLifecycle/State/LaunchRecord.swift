import Plimsoll

/// The record that a process leaves for the next launch, and the decision made from the record. A value.
struct LaunchRecord: Hashable {
    enum Phase: UInt8 {
        /// The process is coming up. Found at launch: the previous launch failed.
        case launching
        /// The process is up. Found at launch: the previous run ended without notice.
        case running
        /// The process terminated in good order.
        case ended
    }

    var phase: Phase
    /// Number of consecutive failed launches before this one.
    var failures: UInt32 = 0
    /// True if this launch starts clean because an operator killed the previous run. Kept until a launch has come up.
    var isClean = false

    /// The decision for a launch, and the record for the next one.
    struct Beginning: Hashable {
        var record: LaunchRecord
        var previousRun: PreviousRun
        var cleanStartReason: String?
    }

    /// Decides how a launch begins.
    ///
    /// - Parameters:
    ///   - previous: record of the previous run; `nil` if there is none.
    ///   - limit: number of consecutive failed launches that make the next start clean, at least 1.
    static func begin(after previous: LaunchRecord?, isMarked: Bool, limit: Int) -> Beginning {
        var record = LaunchRecord(phase: .launching)
        if let previous, previous.phase == .launching {
            record.failures = previous.failures == .max ? .max : previous.failures + 1
            record.isClean = previous.isClean
        }
        if isMarked {
            record.isClean = true
            return Beginning(
                record: record, previousRun: .killedByOperator,
                cleanStartReason: "an operator ended the previous run")
        }
        let run: PreviousRun =
            switch previous?.phase {
            case nil: .none
            case .launching: .failedLaunch
            case .running: .crashed
            case .ended: .clean
            }
        var reason: String?
        if record.failures >= max(1, limit) {
            reason =
                record.failures == 1
                ? "the last launch did not come up" : "the last \(record.failures) launches did not come up"
        } else if record.isClean {
            reason = "an operator ended an earlier run, and no launch has come up since"
        }
        return Beginning(record: record, previousRun: run, cleanStartReason: reason)
    }

    /// Layout: version 1, phase, clean or not, zero, failures (4 bytes, little-endian).
    var bytes: [UInt8] {
        [1, phase.rawValue, isClean ? 1 : 0, 0] + (0..<4).map { UInt8(truncatingIfNeeded: failures >> (8 * $0)) }
    }

}

extension LaunchRecord {
    init?(_ bytes: [UInt8]) {
        guard bytes.count == 8, bytes[0] == 1, let phase = Phase(rawValue: bytes[1]), bytes[2] <= 1 else { return nil }
        let failures = bytes[4...].reversed().reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
        self.init(phase: phase, failures: failures, isClean: bytes[2] == 1)
    }
}
