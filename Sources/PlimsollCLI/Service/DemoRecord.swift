import Plimsoll

/// What was seen of one service, on the demo's clock: drawn, told and judged from the same numbers.
struct DemoRecord {
    struct Sample {
        var at: Duration
        var usage: ByteCount
        /// Of it, what the kernel can't take by itself.
        var fixed: ByteCount
        /// Of it, what orchestrators count.
        var workingSet: ByteCount
    }

    struct Purge {
        var at: Duration
        var took: Duration
        var released: ByteCount
        /// Measured fall of resident memory, negative if the service took more meanwhile.
        var fall: ByteCount
    }

    /// Volatile memory that the kernel was found to have taken by itself.
    struct Drop {
        var at: Duration
        var taken: ByteCount
    }

    enum Fate: Equatable {
        case running
        /// The kernel ended it for want of memory: SIGKILL, and the group counts the kill.
        case killed(at: Duration)
        /// It served until it was asked to end.
        case survived
        /// Anything else, which is nobody's proof.
        case other(String)
    }

    var isProtected: Bool
    var samples: [Sample] = []
    var levels: [(at: Duration, level: PressureLevel)] = []
    var purges: [Purge] = []
    var drops: [Drop] = []
    private(set) var served = 0
    /// When it was last seen to have answered somebody.
    private var answeredAt = Duration.zero
    var hits = 0
    var misses = 0
    var fate = Fate.running

    init(isProtected: Bool) { self.isProtected = isProtected }

    var name: String { isProtected ? "with" : "without" }

    /// Longer than its clients wait for an answer before they give up.
    static let patience = Duration.seconds(3)

    /// Takes note of how many requests have been answered by now.
    mutating func noteServed(_ count: Int, at now: Duration) {
        if count > served { answeredAt = now }
        served = count
    }

    /// `nil` while it answers; else what is wrong with it, although it may still end when it is asked to.
    func standstill(at now: Duration) -> String? {
        now - answeredAt < Self.patience ? nil : "answered nobody after \(Text.number(answeredAt.inSeconds)) s"
    }

    /// Sum of the falls that were measured.
    var givenBack: ByteCount { purges.reduce(.zero) { $0 + max(.zero, $1.fall) } }

    /// Sum of what the kernel took.
    var taken: ByteCount { drops.reduce(.zero) { $0 + $1.taken } }

    /// `killed after 4.2 s`, `survived`, or what else came of it.
    var outcome: String {
        switch fate {
        case .killed(let at): "killed after \(Text.number(at.inSeconds)) s"
        case .survived: "survived"
        case .running: "still running"
        case .other(let reason): reason
        }
    }

    /// The last line of the demo.
    static func result(without: DemoRecord, with: DemoRecord) -> String {
        """
        result: without=\(without.outcome), with=\(with.outcome), \
        served \(with.served) requests, \(Text.mebibytes(with.givenBack)) MiB given back, \
        \(Text.mebibytes(with.taken)) MiB taken by the kernel
        """
    }

    /// Whether both fared as the demo claims.
    static func isProof(without: DemoRecord, with: DemoRecord) -> Bool {
        guard case .killed = without.fate else { return false }
        return with.fate == .survived
    }
}
