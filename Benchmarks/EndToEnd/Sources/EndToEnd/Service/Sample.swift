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

    /// Memory in the status' JSON, whose details are no properties of the status.
    private struct Details: Decodable {
        struct Memory: Decodable {
            var present, evidence: String?
            var roomBytes, growthBytesPerSecond, burstBytes, chargedBytes, volatileBytes: Int?
        }
        var memory: Memory?
    }

    init(_ status: ManagerStatus) {
        let details = try? JSONDecoder().decode(Details.self, from: JSONEncoder().encode(status)),
            memory = details?.memory
        (at, level, present, evidence) = (status.atSeconds, status.level, memory?.present ?? "", memory?.evidence ?? "")
        (available, room) = (status.availableBytes ?? 0, memory?.roomBytes)
        (growth, burst) = (memory?.growthBytesPerSecond ?? 0, memory?.burstBytes ?? 0)
        (charged, volatile, usage) = (memory?.chargedBytes ?? 0, memory?.volatileBytes ?? 0, status.usageBytes ?? 0)
        (releases, released) = (status.releases, status.releasedBytes)
    }

    var line: Data {
        let encoder = JSONEncoder()
        encoder.outputFormatting = .sortedKeys
        return ((try? encoder.encode(self)) ?? Data()) + Data("\n".utf8)
    }
}
