import Plimsoll

/// A reading as a line of a recording or of `watch --json`: integers with their units in the names.
struct ReadingRecord: Codable, Equatable {
    var atMicroseconds: Int
    var boundary: PressureReading.Boundary
    var limitBytes: Int?
    var usageBytes: Int
    var workingSetBytes: Int
    var availableBytes: Int?
    var residentBytes: Int
    var stallSomeMicroseconds: Int?
    var stallFullMicroseconds: Int?
    var highEvents: Int?
    var maxEvents: Int?
    var oomEvents: Int?
    var oomKillEvents: Int?
    var announced: String?

    init(_ reading: PressureReading) {
        atMicroseconds = microseconds(reading.at)
        boundary = reading.boundary
        limitBytes = reading.limit?.bytes
        usageBytes = reading.usage.bytes
        workingSetBytes = reading.workingSet.bytes
        availableBytes = reading.available?.bytes
        residentBytes = reading.resident.bytes
        stallSomeMicroseconds = reading.stall.map { microseconds($0.some) }
        stallFullMicroseconds = reading.stall.map { microseconds($0.full) }
        highEvents = reading.events?.high
        maxEvents = reading.events?.max
        oomEvents = reading.events?.oom
        oomKillEvents = reading.events?.oomKill
        announced = reading.announced?.description
    }

    /// Reason why the record is invalid; `nil` if a kernel could have shown this reading.
    var problem: String? {
        let sizes = [
            ("usageBytes", usageBytes), ("workingSetBytes", workingSetBytes), ("limitBytes", limitBytes),
            ("residentBytes", residentBytes),
            ("atMicroseconds", atMicroseconds), ("stallSomeMicroseconds", stallSomeMicroseconds),
            ("stallFullMicroseconds", stallFullMicroseconds), ("highEvents", highEvents), ("maxEvents", maxEvents),
            ("oomEvents", oomEvents), ("oomKillEvents", oomKillEvents),
        ]
        for case (let name, let value?) in sizes where value < 0 { return "\(name) is \(value); allowed is 0 or more" }
        if let announced, PressureLevel(name: announced) == nil {
            let allowed = PressureLevel.allCases.map(\.description).joined(separator: ", ")
            return "announced is \"\(printable(announced))\"; allowed are \(allowed)"
        }
        return nil
    }

    var reading: PressureReading {
        PressureReading(
            at: .microseconds(atMicroseconds), boundary: boundary, limit: limitBytes.map { ByteCount($0) },
            usage: ByteCount(usageBytes),
            workingSet: ByteCount(workingSetBytes), available: availableBytes.map { ByteCount($0) },
            resident: ByteCount(residentBytes),
            stall: stallSomeMicroseconds.map {
                .init(some: .microseconds($0), full: .microseconds(stallFullMicroseconds ?? 0))
            },
            events: oomKillEvents.map {
                .init(high: highEvents ?? 0, max: maxEvents ?? 0, oom: oomEvents ?? 0, oomKill: $0)
            },
            announced: announced.flatMap { PressureLevel(name: $0) })
    }
}

private func microseconds(_ duration: Duration) -> Int { Int(duration.inNanoseconds / 1000) }
