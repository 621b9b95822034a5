import Plimsoll

/// Events from the service to the demo, one JSON line each on standard output.
struct ServiceEvent: Codable {
    enum Kind: String, Codable { case listening, level, purge, drop, end }

    var kind: Kind
    /// Time on the steady clock that both processes share.
    var atMicroseconds: Int
    var port: UInt16?
    var level: String?
    var askedBytes: Int?
    var releasedBytes: Int?
    /// Measured fall of the process's resident memory; memory allocated meanwhile reduces the fall.
    var fallBytes: Int?
    /// Volatile memory found reclaimed by the kernel.
    var takenBytes: Int?
    var tookMicroseconds: Int?
    var hits: Int?
    var misses: Int?
    var purged: Int?

    init(_ kind: Kind, at: Duration = SteadyClock.now) {
        self.kind = kind
        atMicroseconds = Int(at.inNanoseconds / 1000)
    }

    var at: Duration { .microseconds(atMicroseconds) }

    /// Creates an event for a measured purge.
    init(_ report: ActionReport) {
        self.init(.purge, at: report.began)
        level = report.level.description
        askedBytes = report.asked.bytes
        releasedBytes = (report.released + report.releasedVolatile).bytes
        fallBytes = report.residentFall.bytes
        tookMicroseconds = Int(report.took.inNanoseconds / 1000)
    }

    func emit() { Output.line(JSONLine.encode(self)) }
}
