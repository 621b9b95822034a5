#if Spill
import Crypto
import Plimsoll
import Synchronization

/// The queue of one spilled cache, its look-ups under way, and what is known of the store. Its threads are in `SpillThreads`.
///
/// Stale values are kept out so: each change of a key's value is followed by a removal or another put, in order, by one thread. Where one could not be delivered, or
/// may be overtaken by what a broken connection still carries, the generation changes, and with it the name of every record: nothing that lies there is found again.
final class SpillEngine<Key: Hashable & Sendable, Value: Sendable>: Sendable {
    /// What a look-up in the store brought.
    enum Found: Sendable {
        case value(Value)
        /// The store has none.
        case absent
        /// It may have one.
        case unknown
    }

    struct Read {
        var key: Key
        var deadline: Duration
        var waiting: CheckedContinuation<Found, Never>
    }

    struct State {
        var queue = SpillQueue<Key, Value>()
        /// What is being written: as good as waiting for who looks up, who might else find what is just being removed.
        var writing: (key: Key, work: SpillQueue<Key, Value>.Work)?
        var breaker: CircuitBreaker
        var generation: UInt64
        /// Keys whose put may still be carried out behind our back.
        var unsure: Set<Key> = []
        var reads: [UInt64: Read] = [:]
        /// Look-ups that no thread has taken, oldest first.
        var readOrder: [UInt64] = []
        var lastRead: UInt64 = 0
        var restriction = Int.max
        var statistics = SpillStatistics()
        var hasThreads = false
        var isStopped = false
    }

    static var mostReads: Int { 256 }
    static var mostUnsure: Int { 256 }

    let store: any SpillStore
    let codec: SpillCodec<Value>
    let encodeKey: @Sendable (Key) -> [UInt8]
    let limits: SpillLimits
    let prefix: String
    let version: UInt32
    let secret: SymmetricKey
    let level: @Sendable () -> PressureLevel
    let time = Timekeeper.running
    let state: Mutex<State>
    let meter = AtomicLazyReference<ChargeMeter>()
    let writing = Parker(), reading = Parker(), timing = Parker()

    init(
        store: any SpillStore, codec: SpillCodec<Value>, encodeKey: @escaping @Sendable (Key) -> [UInt8], limits: SpillLimits, prefix: String,
        version: UInt32, secret: SymmetricKey,
        generation: UInt64, level: @escaping @Sendable () -> PressureLevel
    ) {
        (self.store, self.codec, self.encodeKey, self.limits) = (store, codec, encodeKey, limits)
        (self.prefix, self.version, self.secret, self.level) = (prefix, version, secret, level)
        let breaker = CircuitBreaker(.init(failures: limits.failures, shortest: limits.shortestPause, longest: limits.longestPause))
        state = Mutex(State(breaker: breaker, generation: generation))
    }

    /// The form of records of a generation.
    func record(_ generation: UInt64) -> SpillRecord { SpillRecord(version: version, generation: generation, prefix: prefix, secret: secret) }

    var statistics: SpillStatistics {
        state.withLock { state in
            var statistics = state.statistics
            statistics.queuedBytes = ByteCount(state.queue.bytes)
            statistics.queuedCount = state.queue.count
            statistics.isStoreDown = !state.breaker.isClosed
            return statistics
        }
    }

    // MARK: From the cache

    /// The cache has let go of `value`. Never waits: it may be memory that is being freed.
    func put(_ key: Key, _ value: Value) {
        let bytes = max(0, codec.byteCount(value)) + 128, now = time.elapsed()
        if level() == .critical { return state.withLock { $0.statistics.shed += 1 } }
        guard meter.load()?.take(bytes) ?? true else { return state.withLock { $0.statistics.shed += 1 } }
        let (addition, before, after, isFirst) = state.withLock { state -> (SpillQueue<Key, Value>.Addition?, Int, Int, Bool) in
            let most = min(limits.queuedBytes.bytes, state.restriction), before = state.queue.bytes
            if state.isStopped { return (nil, 0, 0, false) }
            if bytes > most || bytes > store.mostBytes {
                state.statistics.unfit += 1
                return (nil, 0, 0, false)
            }
            if !state.breaker.isClosed, state.breaker.retryIn(at: now) > .zero {
                state.statistics.refusedWhileDown += 1
                return (nil, 0, 0, false)
            }
            let addition = add(key, .put(value, bytes: bytes), &state, most)
            return (addition, before, state.queue.bytes, begin(&state))
        }
        // What is not waiting after all is given back.
        meter.load()?.give(addition == nil ? bytes : before + bytes - after)
        if isFirst { startThreads() }
        withExtendedLifetime(addition) { if addition != nil { writing.unpark() } }
    }

    /// What the store may have under `key` is not true any more.
    func remove(_ key: Key) {
        let (addition, before, after, stale, isFirst) = state.withLock { state in
            let before = state.queue.bytes
            guard !state.isStopped else { return (nil as SpillQueue<Key, Value>.Addition?, 0, 0, [] as [Read], false) }
            let addition = add(key, .remove, &state, min(limits.queuedBytes.bytes, state.restriction))
            let stale = state.reads.filter { $0.value.key == key }
            for number in stale.keys { state.reads[number] = nil }
            return (addition, before, state.queue.bytes, Array(stale.values), begin(&state))
        }
        meter.load()?.give(before - after)
        for read in stale { read.waiting.resume(returning: .unknown) }
        if isFirst { startThreads() }
        withExtendedLifetime(addition) { writing.unpark() }
    }

    private func add(_ key: Key, _ work: SpillQueue<Key, Value>.Work, _ state: inout State, _ mostBytes: Int) -> SpillQueue<Key, Value>.Addition {
        if state.unsure.contains(key) { forget(&state) }
        let addition = state.queue.add(key, work, mostBytes: mostBytes, mostCount: limits.queuedCount)
        state.statistics.dropped += addition.dropped - (addition.hasLostRemoval ? 1 : 0)
        if addition.hasLostRemoval { forget(&state) }
        return addition
    }

    /// Nothing that lies in the store is to be found again.
    func forget(_ state: inout State) {
        state.generation = .random(in: .min ... .max)
        state.unsure = []
        state.queue.forgetRemovals()
        state.statistics.forgotten += 1
    }

    /// Everything the store may have is not true any more, and neither is what waits.
    func forgetAll() {
        let (gone, reads, bytes) = state.withLock { state in
            let bytes = state.queue.bytes
            let gone = state.queue.dropValues(.max)
            forget(&state)
            defer {
                state.reads = [:]
                state.readOrder = []
            }
            return (gone, Array(state.reads.values), bytes)
        }
        meter.load()?.give(bytes)
        for read in reads { read.waiting.resume(returning: .unknown) }
        withExtendedLifetime(gone) {}
    }

    /// Lets go of values that wait, at least of `target` bytes.
    func shed(_ target: Int) -> Int {
        let (gone, bytes) = state.withLock { state in
            let before = state.queue.bytes
            let gone = state.queue.dropValues(target)
            state.statistics.shed += gone.count
            return (gone, before - state.queue.bytes)
        }
        meter.load()?.give(bytes)
        withExtendedLifetime(gone) {}
        return bytes
    }

    // MARK: For the cache

    /// Looks for a value of `key`: in the queue at once, in the store within `readTimeout`.
    func find(_ key: Key) async -> Found {
        await withCheckedContinuation { (waiting: CheckedContinuation<Found, Never>) in
            let now = time.elapsed()
            let (found, isFirst): (Found?, Bool) = state.withLock { state in
                switch state.queue.work(for: key) ?? (state.writing?.key == key ? state.writing?.work : nil) {
                case .put(let value, _):
                    state.statistics.queueHits += 1
                    return (.value(value), false)
                case .remove: return (.absent, false)
                case nil: break
                }
                guard !state.isStopped, state.reads.count < Self.mostReads, state.breaker.mayTry(at: now) else {
                    state.statistics.skipped += 1
                    return (.unknown, false)
                }
                state.lastRead += 1
                state.reads[state.lastRead] = Read(key: key, deadline: now + limits.readTimeout, waiting: waiting)
                state.readOrder.append(state.lastRead)
                return (nil, begin(&state))
            }
            if let found { return waiting.resume(returning: found) }
            if isFirst { startThreads() }
            reading.unpark()
            timing.unpark()
        }
    }

    private func begin(_ state: inout State) -> Bool {
        defer { state.hasThreads = true }
        return !state.hasThreads
    }

    /// Ends the threads; look-ups under way find nothing.
    func stop() {
        let (reads, gone, bytes) = state.withLock { state in
            state.isStopped = true
            let bytes = state.queue.bytes
            defer {
                state.reads = [:]
                state.readOrder = []
            }
            return (Array(state.reads.values), state.queue.dropValues(.max), bytes)
        }
        meter.load()?.give(bytes)
        for read in reads { read.waiting.resume(returning: .unknown) }
        withExtendedLifetime(gone) {}
        for parker in [writing, reading, timing] { parker.unpark() }
    }
}
#endif
