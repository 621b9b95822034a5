#if Spill
import Plimsoll
import Synchronization

/// The state of one spilled cache: the queue, pending look-ups, and the circuit breaker of the store. `SpillThreads`
/// contains the threads.
///
/// Stale values are never found. One thread follows each change of a key's value with a removal or another put, in
/// order. If such a step cannot be delivered, or data in a broken connection may overtake that step, the generation
/// changes. With the generation, the name of every record changes, so no earlier record is found again.
final class SpillEngine<Key: Hashable & Sendable, Value: Sendable>: Sendable {
    /// The result of a look-up in the store.
    enum Found: Sendable {
        case value(Value)
        /// The store has no value.
        case absent
        /// The store may have a value.
        case unknown
    }

    struct Read {
        var key: Key
        var deadline: Duration
        var waiting: CheckedContinuation<Found, Never>
    }

    struct State {
        var queue = SpillQueue<Key, Value>()
        /// The item being written. Look-ups treat this item as still queued; otherwise a look-up might find a value
        /// that is just being removed.
        var writing: (key: Key, work: SpillQueue<Key, Value>.Work)?
        var breaker: CircuitBreaker
        var generation: UInt64
        /// Keys with a put that the store may still carry out later.
        var unsure: Set<Key> = []
        var reads: [UInt64: Read] = [:]
        /// Look-ups that no thread has dequeued yet, oldest first.
        var readOrder: [UInt64] = []
        var lastRead: UInt64 = 0
        var restriction = Int.max
        var statistics = SpillStatistics()
        var hasThreads = false
        var isStopped = false
    }

    static var mostReads: Int { 256 }
    static var mostUnsure: Int { 256 }

    let store: SpillStore
    let codec: SpillCodec<Value>
    let encodeKey: @Sendable (Key) -> [UInt8]
    let limits: SpillLimits
    let prefix: String
    let version: UInt32
    let secret: [UInt8]
    let level: @Sendable () -> PressureLevel
    let time = Timekeeper.running
    let state: Mutex<State>
    let meter = AtomicLazyReference<ChargeMeter>()
    let writing = Parker(), reading = Parker(), timing = Parker()

    init(
        store: SpillStore, codec: SpillCodec<Value>, encodeKey: @escaping @Sendable (Key) -> [UInt8],
        limits: SpillLimits, prefix: String,
        version: UInt32, secret: [UInt8],
        generation: UInt64, level: @escaping @Sendable () -> PressureLevel
    ) {
        (self.store, self.codec, self.encodeKey, self.limits) = (store, codec, encodeKey, limits)
        (self.prefix, self.version, self.secret, self.level) = (prefix, version, secret, level)
        let breaker = CircuitBreaker(
            .init(failures: limits.failures, shortest: limits.shortestPause, longest: limits.longestPause))
        state = Mutex(State(breaker: breaker, generation: generation))
    }

    /// Returns the record format of a generation.
    func record(_ generation: UInt64) -> SpillRecord {
        SpillRecord(version: version, generation: generation, prefix: prefix, secret: secret)
    }

    var statistics: SpillStatistics {
        state.withLock { state in
            var statistics = state.statistics
            statistics.queuedBytes = ByteCount(state.queue.bytes)
            statistics.queuedCount = state.queue.count
            statistics.isStoreDown = !state.breaker.isClosed
            return statistics
        }
    }

    // MARK: Changes by the cache

    /// Queues `value`, which the cache has evicted. Never waits: the caller may be freeing memory.
    func put(_ key: Key, _ value: Value) {
        let bytes = max(0, codec.byteCount(value)) + 128, now = time.elapsed()
        if level() == .critical { return state.withLock { $0.statistics.shed += 1 } }
        guard meter.load()?.take(bytes) ?? true else { return state.withLock { $0.statistics.shed += 1 } }
        let (addition, before, after, isFirst) = state.withLock {
            state -> (SpillQueue<Key, Value>.Addition?, Int, Int, Bool) in
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
        // Return the charge of values that are not queued after all.
        meter.load()?.give(addition == nil ? bytes : before + bytes - after)
        if isFirst { startThreads() }
        withExtendedLifetime(addition) { if addition != nil { writing.unpark() } }
    }

    /// Queues a removal: the store's value under `key` is no longer valid.
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

    private func add(_ key: Key, _ work: SpillQueue<Key, Value>.Work, _ state: inout State, _ mostBytes: Int)
        -> SpillQueue<Key, Value>.Addition
    {
        if state.unsure.contains(key) { forget(&state) }
        let addition = state.queue.add(key, work, mostBytes: mostBytes, mostCount: limits.queuedCount)
        state.statistics.dropped += addition.dropped - (addition.hasLostRemoval ? 1 : 0)
        if addition.hasLostRemoval { forget(&state) }
        return addition
    }

    /// Starts a new generation, so that no record in the store is found again.
    func forget(_ state: inout State) {
        state.generation = .random(in: .min ... .max)
        state.unsure = []
        state.queue.forgetRemovals()
        state.statistics.forgotten += 1
    }

    /// Invalidates all values in the store and in the queue.
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

    /// Drops queued values of at least `target` bytes in total.
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

    // MARK: Look-ups by the cache

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
        return !exchange(&state.hasThreads, true)
    }

    /// Stops the threads. Pending look-ups return `unknown`.
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
