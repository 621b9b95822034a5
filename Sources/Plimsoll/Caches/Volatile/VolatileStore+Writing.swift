import Synchronization

extension VolatileStore {
    /// A time longer than any process lives, and short enough for sums.
    private static var forEver: Duration { .seconds(1 << 32) }

    // MARK: Writing

    /// Keeps a value under a key, replacing the previous value.
    ///
    /// - Parameters:
    ///   - timeToLive: age at which the value counts as missing; `nil` for never.
    ///   - tags: hashes of tags.
    ///   - load: the load that made the value. A load that was revoked, or overtaken by an insert, keeps nothing.
    /// - Returns: false, and nothing has changed, if the value cannot be kept.
    @usableFromInline
    func insert(
        _ hash: UInt64, _ key: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer, timeToLive: Duration?,
        tags: [UInt64],
        of load: LoadOrigin?, isSame: (UnsafeRawBufferPointer) -> Bool
    ) -> Bool {
        guard value.count <= UInt32.max, tags.count <= ItemHeader.mostTags, key.count <= UInt16.max else {
            return false
        }
        let header = ItemHeader(
            hash: hash, key: key.count, value: value.count, tags: tags.count, expires: timeToLive != nil)
        guard header.prefix <= PageLayout.content else { return false }
        var hasAsked = false
        while true {
            let seen = withLog(0) { $0.insertions(hash) }
            // Compare keys without the lock: that may be application code.
            let existing = find(hash, key, isSame: isSame)?.word
            let (outcome, request) = withLog((.refused, nil)) {
                log -> (VolatileLog.Insertion, VolatileLog.RoomRequest?) in
                if let load, load.isRevoked || existing != nil { return (.refused, nil) }
                guard existing != nil || log.insertions(hash) == seen else { return (.again, nil) }
                let expiry = timeToLive.map { UInt64(max(0, (log.now + min($0, Self.forEver)).inNanoseconds)) } ?? 0
                let outcome = log.insert(
                    header, expiry: expiry, tags: tags, key: key, value: value, existing: existing)
                return (outcome, log.takeRequest())
            }
            // Without the lock: the others have locks of their own.
            let made = hasAsked ? 0 : request.map { $0.meter.makeRoom($0.bytes) } ?? 0
            hasAsked = hasAsked || request != nil
            switch outcome {
            case .inserted:
                if isSampled(hash) { noteInsert(hash, cost: header.cost) }
                return true
            case .refused where made > 0: continue
            case .refused: return false
            case .again: continue
            }
        }
    }

    /// Removes an item if it is still at the place where it was found.
    ///
    /// - Returns: true for the one caller that removed the item.
    @usableFromInline
    @discardableResult
    func remove(_ found: Found) -> Bool {
        withLog(false) { log in
            // A different generation means a later item of the same key at the same place.
            guard let segment = log.segments[found.word.segment], segment.generation == found.generation,
                let header = segment.header(at: found.word.offset), let slot = log.index.find(found.word, header.hash)
            else { return false }
            log.leave(slot, found.word, header, in: segment, .removed)
            if segment.isSealed, log.segments[found.word.segment]?.liveCount == 0 {
                log.retire(found.word.segment, .removed)
            }
            return true
        }
    }

    /// Waits for the end of an insert in progress. Look-ups take no lock, so they may miss a value that is just being
    /// kept.
    func awaitWriter() { withLog(()) { _ in } }

    func removeAll() { withLog(()) { log in _ = log.release(.max, .removed) } }

    func purge(tag: UInt64) -> Int { withLog(0) { $0.purge(tag: tag) } }
    func count(tag: UInt64) -> Int { withLog(0) { $0.count(tag: tag) } }

    // MARK: Size

    var limit: Int? { withLog(0) { $0.limit } }

    func setLimit(_ limit: Int?) {
        withLog(()) { log in
            log.limit = limit.map { max(0, $0) }
            log.shrinkToBound()
        }
    }

    /// Stays within `bytes` from now on, without releasing anything for that; `nil` lifts the bound.
    func restrict(to bytes: Int?) { withLog(()) { $0.restriction = bytes } }

    /// Bytes of memory in use, dead space included, as far as is known.
    var mapped: Int { withLog(0) { $0.mapped } }

    /// Bytes of `mapped` that the kernel may take.
    var volatileBytes: Int { withLog(0) { $0.isVolatile ? $0.sealed : 0 } }

    var isVolatile: Bool { withLog(false) { $0.isVolatile } }

    var statistics: CacheStatistics {
        var statistics = withLog(CacheStatistics()) { log in
            var statistics = log.counts
            statistics.count = log.liveCount
            statistics.byteCount = log.liveBytes
            return statistics
        }
        statistics.hits = counters.sum(.hit)
        statistics.misses = counters.sum(.miss)
        return statistics
    }

    // MARK: For a manager

    func release(_ target: Int) -> Int { withLog(0) { $0.release(target) } }

    func noticeDrops() -> Int { withLog(0) { $0.noticeDrops() } }

    /// Number of times that one `turnOver` takes the lock, each time for 4 MiB of copies and some thousands of items at
    /// most. The manager's thread must not be away for long, and calls again in seconds.
    private static var mostTurns: Int { 64 }

    /// Evicts what was sealed longer than `age` ago and not used since. Other writers get the lock in between.
    func turnOver(olderThan age: Duration) {
        for _ in 0..<Self.mostTurns where !withLog(false, { $0.turnOver(olderThan: age) }) { return }
    }

    func attach(_ meter: ChargeMeter) {
        withLog(()) { log in
            guard log.meter == nil else { return }
            log.meter = meter
            meter.takeAnyway(log.mapped)
        }
    }

    // MARK: Lock and listeners

    func listen(_ listener: @escaping @Sendable (UnsafeRawBufferPointer, RemovalReason) -> Void) {
        listeners.withLock { $0.append(listener) }
        withLog(()) { $0.isListening = true }
    }

    /// Calls `body` with the log, under the lock. Returns `forked` in a forked child, where a thread that does not
    /// exist there may hold the lock for ever.
    func withLog<R: Sendable>(_ forked: R, _ body: (inout VolatileLog) -> R) -> R {
        guard !isForked else { return forked }
        let now = time.elapsed()
        let (result, departures) = log.withLock { log in
            log.now = now
            return (body(&log), log.takeDepartures())
        }
        notify(departures)
        return result
    }

    func withLogIfFree(_ body: (inout VolatileLog) -> Void) {
        let now = time.elapsed()
        let departures = log.withLockIfAvailable { log in
            log.now = now
            body(&log)
            return log.takeDepartures()
        }
        notify(departures ?? [])
    }

    /// Notifies the listeners, after the lock, on the thread that removed the entries.
    private func notify(_ departures: [VolatileLog.Departure]) {
        guard !departures.isEmpty else { return }
        let listeners = listeners.withLock { $0 }
        for departure in departures {
            departure.key.withUnsafeBytes { key in
                for listener in listeners { listener(key, departure.reason) }
            }
        }
    }
}
