/// Requests that are not finished yet, by id.
struct DeferredQueue {
    struct Ask {
        let id: String
        /// Distinguishes a request from the one it replaced.
        let order: UInt64
        /// Due time by the machine's time.
        var due: Duration
        /// Due time by the time of day, for the next start.
        var dueWall: Duration
        /// Original delay of the request.
        var delay: Duration
        let level: PressureLevel
        var attempts = 0
    }

    enum Outcome { case finished, unfinished, refused }

    private var asks: [String: Ask] = [:]
    /// Ids that this run has scheduled, cancelled or taken over. A program has few: one for each kind of work.
    private var known: Set<String> = []
    private var order: UInt64 = 0

    private static let firstRetry = Duration.seconds(30)
    private static let lastRetry = Duration.seconds(3600)
    /// Delay after a refusal whose end is not announced.
    private static let refusedRetry = Duration.seconds(1)
    private static let mark = "PLIMSOLL-DEFERRED"

    mutating func ask(_ id: String, after delay: Duration, _ level: PressureLevel, now: Duration, wall: Duration) {
        order += 1
        known.insert(id)
        asks[id] = Ask(id: id, order: order, due: now + delay, dueWall: wall + delay, delay: delay, level: level)
    }

    /// Removes the request. Returns true if there was one.
    mutating func remove(_ id: String) -> Bool {
        known.insert(id)
        return asks.removeValue(forKey: id) != nil
    }

    /// The requests by due time, then by the order of the requests.
    ///
    /// - Complexity: O(n log n); requests are few.
    var inOrder: [Ask] { asks.values.sorted { ($0.due, $0.order) < ($1.due, $1.order) } }

    func nextDue(after now: Duration) -> Duration? { asks.values.lazy.map(\.due).filter { $0 > now }.min() }

    /// Records the end of a run. No effect on a request that was replaced meanwhile.
    mutating func ended(_ ask: Ask, _ outcome: Outcome, now: Duration, wall: Duration) {
        guard var current = asks[ask.id], current.order == ask.order else { return }
        switch outcome {
        case .finished:
            asks[ask.id] = nil
            return
        case .refused: current.delay = Self.refusedRetry
        case .unfinished:
            current.attempts += 1
            current.delay = min(Self.lastRetry, Self.firstRetry * (1 << min(10, current.attempts - 1)))
        }
        (current.due, current.dueWall) = (now + current.delay, wall + current.delay)
        asks[ask.id] = current
    }

    /// Adds the requests of an earlier run, except under known ids: the store may still hold a request that this run
    /// has cancelled or finished. A changed time of day makes no request wait longer than its original delay.
    mutating func takeOver(_ old: [Ask], now: Duration, wall: Duration) {
        for ask in old where known.insert(ask.id).inserted {
            order += 1
            let left = min(max(.zero, ask.dueWall - wall), ask.delay)
            asks[ask.id] = Ask(
                id: ask.id, order: order, due: now + left, dueWall: wall + left, delay: ask.delay, level: ask.level,
                attempts: ask.attempts)
        }
    }

    // MARK: On disk

    var encoded: [UInt8] {
        var bytes = KeptBytes(Self.mark, version: 1)
        bytes.put(Int64(asks.count))
        for ask in inOrder {
            bytes.put(ask.id.utf8)
            bytes.put(ask.dueWall.inNanoseconds)
            bytes.put(ask.delay.inNanoseconds)
            bytes.put(Int64(ask.level.rawValue))
            bytes.put(Int64(ask.attempts))
        }
        return bytes.sealed()
    }

    static func decode(_ bytes: [UInt8]) throws(KeptBytes.Problem) -> [Ask] {
        var reader = try KeptBytes(reading: bytes, mark, version: 1)
        var asks: [Ask] = []
        for _ in 0..<max(0, try reader.number()) {
            let id = try reader.text()
            let dueWall = Duration.nanoseconds(try reader.number()), delay = Duration.nanoseconds(try reader.number())
            guard let level = UInt8(exactly: try reader.number()).flatMap(PressureLevel.init(rawValue:)) else {
                throw KeptBytes.Problem(reason: "an entry has an unknown level")
            }
            let attempts = try reader.number()
            guard delay >= .zero, attempts >= 0 else {
                throw KeptBytes.Problem(reason: "an entry has a negative delay or number of attempts")
            }
            asks.append(
                Ask(
                    id: id, order: 0, due: .zero, dueWall: dueWall, delay: delay, level: level,
                    attempts: Int(min(attempts, 1 << 32))))
        }
        return asks
    }
}
