import Foundation
import Plimsoll

/// A manager's state at one time, for a look at how bytes moved.
struct Sample: Encodable {
    var at: Double
    var level: String
    var present: String
    var evidence: String
    var available: Int
    var room: Int?
    var growth: Int
    var burst: Int
    var charged: Int
    var volatile: Int
    var usage: Int
    var releases: Int
    var released: Int

    init(_ status: ManagerStatus) {
        let memory = status.memory
        (at, level, present, evidence) = (status.atSeconds, status.level, memory?.present ?? "", memory?.evidence ?? "")
        (available, room) = (memory?.availableBytes ?? 0, memory?.roomBytes)
        (growth, burst) = (memory?.growthBytesPerSecond ?? 0, memory?.burstBytes ?? 0)
        (charged, volatile, usage) = (memory?.chargedBytes ?? 0, memory?.volatileBytes ?? 0, memory?.usageBytes ?? 0)
        (releases, released) = (Int(status.counts.releases.count), Int(status.counts.releases.releasedBytes))
    }

    var line: Data {
        let encoder = JSONEncoder()
        encoder.outputFormatting = .sortedKeys
        return ((try? encoder.encode(self)) ?? Data()) + Data("\n".utf8)
    }
}
