import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// The numbers of a holder, and the requests that it has noted.
struct Notes: Sendable {
    var held: Int
    /// The bytes asked for, call by call.
    var asked: [Int] = []
    /// The restrictions in order; `nil` for a lifted one.
    var restrictions: [ByteCount?] = []
    /// The results of the next checks for reclaimed pages.
    var dropped: [Int] = []
    var idleCalls = 0

    /// Releases what `answer` says, at most what is held.
    mutating func release(_ target: Int, _ answer: (Int, Int) -> Int) -> Int {
        asked.append(target)
        let gained = answer(target, asked.count)
        held -= max(0, min(held, gained))
        return gained
    }
}

/// A purgeable that is only numbers, and notes each request.
final class NotedHolder: SharedPurgeable {
    let name: String, rebuildCost: RebuildCost, rebuildTimePerByte: Double?, releasesUnderPressure: Bool
    let notes: Mutex<Notes>
    private let isMetered: Bool
    private let onCount: @Sendable () -> Void
    /// Returns the bytes released, of the bytes asked for and the number of the call; `nil` for up to all that is held.
    private let answer: (@Sendable (Int, Int) -> Int)?

    init(
        _ name: String = "holder", held: Int, _ cost: RebuildCost = .cheap, rate: Double? = nil, isMetered: Bool = false,
        releases: Bool = true, onCount: @escaping @Sendable () -> Void = {},
        answer: (@Sendable (_ asked: Int, _ call: Int) -> Int)? = nil
    ) {
        (self.name, rebuildCost, rebuildTimePerByte) = (name, cost, rate)
        (releasesUnderPressure, self.isMetered) = (releases, isMetered)
        (self.onCount, self.answer) = (onCount, answer)
        notes = Mutex(Notes(held: held))
    }

    var asked: [Int] { notes.withLock { $0.asked } }
    var restrictions: [ByteCount?] { notes.withLock { $0.restrictions } }
    var statistics: CacheStatistics { CacheStatistics() }
    var holdsAtMost: ByteCount? { nil }
    var heldBytes: Int {
        onCount()
        return notes.withLock { $0.held }
    }

    func attach(_ meter: ChargeMeter) -> Bool { isMetered }
    func release(_ target: Int) -> Int {
        notes.withLock { notes in
            let held = notes.held
            return notes.release(target) { asked, call in answer.map { $0(asked, call) } ?? min(asked, held) }
        }
    }
    func restrict(to limit: ByteCount?) { notes.withLock { $0.restrictions.append(limit) } }
    func learn(onRound: (@Sendable () -> Void)?) {}
    func endRound(upTo bytes: Int, at now: Duration) -> Learnt? { nil }
    func setShare(_ bytes: Int?) {}
    func evictAboveShare(_ count: Int) -> Int { 0 }
}

/// A holder of volatile memory that is only numbers, and notes each request.
final class NotedVolatile: VolatilePurgeable, SharedPurgeable {
    /// A call into the holder.
    enum Call: Sendable { case release, noticeDrops, giveBackIdle }

    let name: String, rebuildCost: RebuildCost
    let notes: Mutex<Notes>
    private let isVolatile: Bool
    private let onCall: @Sendable (Call) -> Void
    private let answer: (@Sendable (Int) -> Int)?

    /// - Parameters:
    ///   - isVolatile: false if the kernel may reclaim none of the pages at present.
    ///   - onCall: called at the begin of each call.
    ///   - answer: returns the bytes released of the bytes asked for; `nil` for up to all that is held.
    init(
        _ name: String = "volatile", held: Int, _ cost: RebuildCost = .cheap, isVolatile: Bool = true,
        onCall: @escaping @Sendable (Call) -> Void = { _ in }, answer: (@Sendable (_ asked: Int) -> Int)? = nil
    ) {
        (self.name, rebuildCost, self.isVolatile) = (name, cost, isVolatile)
        (self.onCall, self.answer) = (onCall, answer)
        notes = Mutex(Notes(held: held))
    }

    var asked: [Int] { notes.withLock { $0.asked } }
    var statistics: CacheStatistics { CacheStatistics() }
    var holdsAtMost: ByteCount? { nil }
    var heldBytes: Int { notes.withLock { $0.held } }
    var volatileBytes: Int { isVolatile ? heldBytes : 0 }

    func attach(_ meter: ChargeMeter) -> Bool { true }
    func attach(volatile meter: ChargeMeter) {}
    func release(_ target: Int) -> Int {
        onCall(.release)
        return notes.withLock { notes in
            let held = notes.held
            return notes.release(target) { asked, _ in answer.map { $0(asked) } ?? min(asked, held) }
        }
    }
    func noticeDrops() -> Int {
        onCall(.noticeDrops)
        return notes.withLock { $0.dropped.isEmpty ? 0 : $0.dropped.removeFirst() }
    }
    func giveBackIdle() {
        onCall(.giveBackIdle)
        notes.withLock { $0.idleCalls += 1 }
    }
    func learn(onRound: (@Sendable () -> Void)?) {}
    func endRound(upTo bytes: Int, at now: Duration) -> Learnt? { nil }
    func setShare(_ bytes: Int?) {}
    func evictAboveShare(_ count: Int) -> Int { 0 }
}

/// A source whose measurements fall by 10 MiB resident and 20 MiB of usage each, and that counts the wake-ups.
final class FallingSource: PressureSource {
    private let state = Mutex((measurements: 0, wakes: 0))

    var wakes: Int { state.withLock { $0.wakes } }
    var capabilities: Capabilities { Capabilities(support: .inert, signals: []) }
    var rings: Bool { true }
    func read(at: Duration) throws(PressureSourceError) -> PressureReading { PressureReading(at: at) }
    func wait(atMost limit: Duration) {}
    func wake() { state.withLock { $0.wakes += 1 } }
    func footprint() -> Footprint {
        let count = state.withLock { state in
            state.measurements += 1
            return state.measurements
        }
        return Footprint(resident: .mebibytes(1000 - 10 * count), usage: .mebibytes(2000 - 20 * count))
    }
}

/// Runs `body` in one turn of a worker, on a thread of its own, and returns the result.
func inTurn<Result: Sendable>(_ body: @escaping @Sendable (Worker.Turn) -> Result) -> Result {
    let results = Log<Result>()
    let worker = Worker("turn") { results.add(body($0)) }
    worker.start()
    worker.request()
    blockUntil("the end of the turn") { !results.all.isEmpty }
    worker.stop()
    return results.all[0]
}
