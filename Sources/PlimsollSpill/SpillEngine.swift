#if Spill
import Plimsoll
import Synchronization

/// The state of one spilled cache: the queue, pending look-ups, and the circuit breaker of the store. `SpillThreads`
/// contains the threads.
///
/// Stale values are never found. One thread follows each change of a key's value with a removal or another put, in
/// order. If such a step cannot be delivered, or data in a broken connection may overtake that step, the generation
/// changes. With the generation, the name of every record changes, so no earlier record is found again.
///
/// The cache reports an evicted value after its lock, perhaps after a change of the key. Each change therefore has a
/// number, and a value that left the cache before the last change of its key is not queued.
final class SpillEngine<Key: Hashable & Sendable, Value: Sendable>: Sendable {
    /// The result of a look-up in the store.
    enum Found: Sendable {
        /// The value, with the rest of its time to live; `nil` for ever.
        case value(Value, timeToLive: Duration?)
        /// The store has no value.
        case absent
        /// The value is no longer valid. The store may still have a record of the key.
        case expired
        /// The store may have a value.
        case unknown
    }

    struct Read {
        var key: Key
        var deadline: Duration
        var waiting: CheckedContinuation<Found, Never>
    }

    /// The changes after which an older value is stale.
    struct Changes {
        /// Number of changes in progress.
        var running = 0
        /// Number of the last change (`CacheInvalidation.changes`).
        var last: UInt64 = 0

        /// Number of classes of keys, a power of two.
        static var classes: Int { 256 }

        /// Returns true if a value that left the cache after so many changes is still valid.
        func permit(_ number: UInt64) -> Bool { running == 0 && number >= last }

        mutating func end() {
            running -= 1
            last = CacheInvalidation.changes.wrappingAdd(1, ordering: .relaxed).newValue
        }
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
        /// Changes of keys, by the low bits of the hash. A change also keeps out values of other keys with those bits.
        var changes = [Changes](repeating: Changes(), count: Changes.classes)
        /// Changes of all keys.
        var invalidations = Changes()
        var reads: [UInt64: Read] = [:]
        /// Look-ups that no thread has dequeued yet, oldest first.
        var readOrder: [UInt64] = []
        var lastRead: UInt64 = 0
        var restriction = Int.max
        var statistics = SpillStatistics()
        /// Number of the threads that run.
        var threads = 0
        var isStarting = false
        var isStopped = false
    }

    static var mostReads: Int { 256 }
    static var mostUnsure: Int { 256 }
    static var threadCount: Int { 3 }

    let store: SpillStore
    let codec: SpillCodec<Value>
    let encodeKey: @Sendable (Key) -> [UInt8]
    let limits: SpillLimits
    let prefix: String
    let version: UInt32
    let secret: [UInt8]
    let level: @Sendable () -> PressureLevel
    let time: Timekeeper
    let state: Mutex<State>
    let meter = AtomicLazyReference<ChargeMeter>()
    let writing = Parker(), reading = Parker(), timing = Parker()
    let startThread: Thread.Starter

    init(
        store: SpillStore, codec: SpillCodec<Value>, encodeKey: @escaping @Sendable (Key) -> [UInt8],
        limits: SpillLimits, prefix: String,
        version: UInt32, secret: [UInt8],
        generation: UInt64, level: @escaping @Sendable () -> PressureLevel, time: Timekeeper = .running,
        startThread: @escaping Thread.Starter = Thread.start
    ) {
        (self.time, self.startThread) = (time, startThread)
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
    ///
    /// - Parameters:
    ///   - changes: the number of changes before the value left the cache, or less.
    ///   - left: the time for which the value stays valid.
    func put(_ key: Key, _ value: Value, after changes: UInt64, _ left: TimeLeft = TimeLeft()) {
        let bytes = min(max(0, codec.byteCount(value)), Int.max - 128) + 128, now = time.elapsed()
        let place = place(of: key)
        let put = SpillQueue<Key, Value>.Put(value: value, bytes: bytes, left: left, since: now)
        if bytes > min(limits.queuedBytes.bytes, store.mostBytes) || put.left(at: now) == nil {
            return state.withLock { $0.statistics.unfit += 1 }
        }
        if level() == .critical { return state.withLock { $0.statistics.shed += 1 } }
        guard meter.load()?.take(bytes) ?? true else { return state.withLock { $0.statistics.shed += 1 } }
        let (addition, before, after, isFirst) = state.withLock {
            state -> (SpillQueue<Key, Value>.Addition?, Int, Int, Bool) in
            let most = min(limits.queuedBytes.bytes, state.restriction), before = state.queue.bytes
            if state.isStopped || !state.invalidations.permit(changes) || !state.changes[place].permit(changes) {
                return (nil, 0, 0, false)
            }
            if bytes > most {
                state.statistics.unfit += 1
                return (nil, 0, 0, false)
            }
            if !state.breaker.isClosed, state.breaker.retryIn(at: now) > .zero {
                state.statistics.refusedWhileDown += 1
                return (nil, 0, 0, false)
            }
            let addition = add(key, .put(put), &state, most)
            return (addition, before, state.queue.bytes, begin(&state))
        }
        // Return the charge of values that are not queued after all.
        meter.load()?.give(addition == nil ? bytes : bytes - (after - before))
        if isFirst { startThreads() }
        withExtendedLifetime(addition) { if addition != nil { writing.unpark() } }
    }

    /// Queues a removal: the store's value under `key` is no longer valid.
    func remove(_ key: Key) { change(key) {} }

    /// Queues a removal, then runs `body`, which changes the value under `key` in the cache. A value of the key that
    /// leaves the cache until `body` has ended is not queued.
    func change<Result>(_ key: Key, _ body: () -> Result) -> Result {
        let place = place(of: key)
        let (addition, before, after, stale, isFirst) = state.withLock { state in
            state.changes[place].running += 1
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
        defer { state.withLock { $0.changes[place].end() } }
        return body()
    }

    private func place(of key: Key) -> Int { key.hashValue & (Changes.classes - 1) }

    private func add(_ key: Key, _ work: SpillQueue<Key, Value>.Work, _ state: inout State, _ mostBytes: Int)
        -> SpillQueue<Key, Value>.Addition
    {
        if state.unsure.contains(key) { forget(&state) }
        let addition = state.queue.add(key, work, mostBytes: mostBytes, mostCount: limits.queuedCount)
        state.statistics.dropped += addition.dropped
        if addition.hasLostRemoval { forget(&state) }
        return addition
    }

    /// Starts a new generation, so that no record in the store is found again.
    func forget(_ state: inout State) {
        state.generation = .random(in: .min ... .max)
        state.unsure = []
        // The writer's value may be one of those to forget. With the new generation, no look-up finds the record.
        state.writing = nil
        state.queue.forgetRemovals()
        state.statistics.forgotten += 1
    }

    /// Invalidates all values in the store and in the queue. Until `endInvalidation`, no value is queued.
    func beginInvalidation() {
        drop { state in
            forget(&state)
            state.invalidations.running += 1
        }
    }

    /// Ends an invalidation. Values that left the cache before are not queued.
    func endInvalidation() { state.withLock { $0.invalidations.end() } }

    /// Runs `change`, and drops queued values and pending look-ups. The look-ups return `unknown`.
    func drop(_ change: (inout State) -> Void) {
        let (gone, reads, bytes) = state.withLock { state in
            let bytes = state.queue.bytes
            let gone = state.queue.dropValues(.max)
            change(&state)
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
                case .put(let put):
                    guard let left = put.left(at: now) else { return (.expired, false) }
                    state.statistics.queueHits += 1
                    return (.value(put.value, timeToLive: left.toLive), false)
                case .remove: return (.absent, false)
                case nil: break
                }
                guard !state.isStopped, state.reads.count < Self.mostReads, state.breaker.retryIn(at: now) == .zero
                else {
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

    /// Returns true if the caller must call `startThreads`.
    private func begin(_ state: inout State) -> Bool {
        guard state.threads < Self.threadCount, !state.isStarting else { return false }
        state.isStarting = true
        return true
    }

    /// Stops the threads. Pending look-ups return `unknown`.
    func stop() {
        drop { $0.isStopped = true }
        for parker in [writing, reading, timing] { parker.unpark() }
    }
}
#endif
