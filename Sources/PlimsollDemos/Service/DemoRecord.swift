import Plimsoll

/// Observations of one service, on the demo's clock: chart, narrative and verdict use the same numbers.
struct DemoRecord {
    struct Sample {
        var at: Duration
        var usage: ByteCount
        /// Part of the usage that the kernel cannot reclaim by itself.
        var fixed: ByteCount
        /// Part of the usage that orchestrators count.
        var workingSet: ByteCount
    }

    struct Purge {
        var at: Duration
        var took: Duration
        var released: ByteCount
        /// Measured fall of resident memory; negative if the service allocated more meanwhile.
        var fall: ByteCount
    }

    /// Volatile memory found reclaimed by the kernel.
    struct Drop {
        var at: Duration
        var taken: ByteCount
    }

    enum Fate: Equatable {
        case running
        /// The kernel OOM-killed the service: SIGKILL, and the group counts the kill.
        case killed(at: Duration)
        /// The service ran until it was asked to end.
        case survived
        /// Any other end; proves nothing.
        case other(String)
    }

    var isProtected: Bool
    var samples: [Sample] = []
    var levels: [(at: Duration, level: PressureLevel)] = []
    var purges: [Purge] = []
    var drops: [Drop] = []
    private(set) var served = 0
    /// Time at which the service was last seen to have answered a request.
    private var answeredAt = Duration.zero
    var hits = 0
    var misses = 0
    var fate = Fate.running

    init(isProtected: Bool) { self.isProtected = isProtected }

    var name: String { isProtected ? "with" : "without" }

    /// Longer than the timeout of the clients.
    static let patience = Duration.seconds(3)

    /// Records the number of requests answered so far.
    mutating func noteServed(_ count: Int, at now: Duration) {
        if count > served { answeredAt = now }
        served = count
    }

    /// Returns `nil` while the service answers, else the problem. A service with a problem may still end when asked
    /// to.
    func outage(at now: Duration) -> String? {
        now - answeredAt < Self.patience ? nil : "answered no request after \(Text.number(answeredAt.inSeconds)) s"
    }

    /// Sum of the measured falls.
    var givenBack: ByteCount { purges.reduce(.zero) { $0 + max(.zero, $1.fall) } }

    /// Sum of the memory reclaimed by the kernel.
    var taken: ByteCount { drops.reduce(.zero) { $0 + $1.taken } }

    /// Outcome in words: `killed after 4.2 s`, `survived`, or another reason.
    var outcome: String {
        switch fate {
        case .killed(let at): "killed after \(Text.number(at.inSeconds)) s"
        case .survived: "survived"
        case .running: "still running"
        case .other(let reason): reason
        }
    }

    /// Returns the last line of the demo.
    static func result(without: DemoRecord, with: DemoRecord) -> String {
        """
        result: without=\(without.outcome), with=\(with.outcome), \
        served \(with.served) requests, \(Text.mebibytes(with.givenBack)) MiB released, \
        \(Text.mebibytes(with.taken)) MiB reclaimed by the kernel
        """
    }

    /// Returns true if both services fared as the demo claims.
    static func isProof(without: DemoRecord, with: DemoRecord) -> Bool {
        guard case .killed = without.fate else { return false }
        return with.fate == .survived
    }
}

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
