import Plimsoll

/// What the service tells the demo, a JSON line each on its standard output.
struct ServiceEvent: Codable {
    enum Kind: String, Codable { case listening, level, purge, drop, end }

    var kind: Kind
    /// On the steady clock that both processes share.
    var atMicroseconds: Int
    var port: UInt16?
    var level: String?
    var askedBytes: Int?
    var releasedBytes: Int?
    /// Measured fall of the process's resident memory; what the service took meanwhile counts against it.
    var fallBytes: Int?
    /// Volatile memory that the kernel was found to have taken.
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

    /// A purge as it was measured.
    init(_ report: ActionReport) {
        self.init(.purge, at: report.began)
        level = report.level.description
        askedBytes = report.asked.bytes
        releasedBytes = report.released.bytes
        fallBytes = report.residentFall.bytes
        tookMicroseconds = Int(report.took.inNanoseconds / 1000)
    }

    func emit() { Output.line(JSONLine.encode(self)) }
}
