#if Spill
import Plimsoll
import Synchronization

/// The three threads: a writer, a reader for look-ups, and a timer. The timer resumes look-ups at their deadline,
/// even if the store is slow.
extension SpillEngine {
    /// Starts the threads that do not run. If one cannot be started, drops queued values and pending look-ups, and the
    /// next call that needs the threads tries again. Removals stay in the queue.
    func startThreads() {
        let threads: [(name: String, run: @Sendable () -> Void)] = [
            ("plimsoll-spill", { [self] in write() }), ("plimsoll-find", { [self] in read() }),
            ("plimsoll-wait", { [self] in watchTime() }),
        ]
        var count = state.withLock { $0.threads }
        while count < threads.count, startThread(threads[count].name, threads[count].run) { count += 1 }
        let started = count
        guard started < threads.count else {
            return state.withLock { ($0.threads, $0.isStarting) = (started, false) }
        }
        drop { ($0.threads, $0.isStarting) = (started, false) }
        noted(
            SpillError(
                .unreachable,
                "spill to \(store.name): cannot start a thread; check the limit of processes (pids.max, RLIMIT_NPROC)"
            ))
    }

    private var isStopped: Bool { state.withLock { $0.isStopped } }

    private func noted(_ problem: SpillError) { state.withLock { $0.statistics.lastProblem = problem.description } }

    private func succeeded() { state.withLock { $0.breaker.succeeded() } }

    private func failed(_ problem: SpillError, _ settle: (inout State) -> Void = { _ in }) {
        let now = time.elapsed(), share = Double.random(in: 0.5...1)
        state.withLock { state in
            state.breaker.failed(at: now, share: share)
            state.statistics.failures += 1
            state.statistics.lastProblem = problem.description
            settle(&state)
        }
    }

    // MARK: Writing

    private func write() {
        var connection: (any SpillConnection)?
        while !isStopped {
            let now = time.elapsed()
            let (work, pause, generation): ((key: Key, work: SpillQueue<Key, Value>.Work)?, Duration?, UInt64) =
                state.withLock { state in
                    if state.queue.isEmpty { return (nil, nil, 0) }
                    guard state.breaker.mayTry(at: now) else {
                        return (nil, max(.milliseconds(1), state.breaker.retryIn(at: now)), 0)
                    }
                    state.writing = state.queue.next()
                    return (state.writing, nil, state.generation)
                }
            if let work {
                // `work` still references the value, so no value is deallocated under the lock.
                carryOut(work.key, work.work, generation, &connection)
                meter.load()?.give(work.work.bytes)
            } else {
                writing.park(atMost: pause)
            }
        }
    }

    /// Carries out the work that `State.writing` holds. Counts the result and ends `writing` in one step, so that work
    /// that counts as done is not found in the queue.
    private func carryOut(
        _ key: Key, _ work: SpillQueue<Key, Value>.Work, _ generation: UInt64,
        _ connection: inout (any SpillConnection)?
    ) {
        let record = record(generation), keyBytes = encodeKey(key), name = record.name(of: keyBytes)
        var written: (bytes: [UInt8], age: Duration)?
        if case .put(let put) = work {
            written = encoded(put, keyBytes, record)
            if written == nil, !staysToRemove(put, key) { return }
        }
        do throws(SpillError) {
            let open = if let connection { connection } else { try store.connect(within: limits.writeTimeout) }
            connection = open
            if let written {
                try open.put(name, written.bytes, age: written.age, within: limits.writeTimeout)
            } else {
                try open.remove(name, within: limits.writeTimeout)
            }
            state.withLock { state in
                if written == nil { state.statistics.removed += 1 } else { state.statistics.stored += 1 }
                state.writing = nil
            }
            succeeded()
        } catch {
            if error.kind != .refused { connection = nil }
            failed(error) { state in
                state.writing = nil
                guard state.generation == generation else { return }
                if work.removes {
                    // An older value may still be in the store.
                    forget(&state)
                } else if error.kind == .unanswered || error.kind == .malformed {
                    state.unsure.insert(key)
                    // A change that waits already would be overtaken by the write.
                    if state.unsure.count > Self.mostUnsure || state.queue.work(for: key) != nil { forget(&state) }
                }
            }
        }
    }

    /// Returns the record of a value, and the longest age of the record in the store. Returns nil if the value has
    /// expired, cannot be encoded or is too large.
    private func encoded(_ put: SpillQueue<Key, Value>.Put, _ key: [UInt8], _ record: SpillRecord) -> (
        bytes: [UInt8], age: Duration
    )? {
        // The times go before the encoding, which may take long.
        let now = time.elapsed(), wall = time.wall()
        guard let left = put.left(at: now), let encoded = try? codec.encode(put.value),
            let bytes = record.bytes(key, encoded, left, at: wall), bytes.count <= store.mostBytes
        else { return nil }
        return (bytes, min(limits.age, max(.milliseconds(1), left.shortest ?? limits.age)))
    }

    /// Counts a value that cannot be written. Returns true if the removal whose place the value took must be carried
    /// out; otherwise ends `writing`.
    private func staysToRemove(_ put: SpillQueue<Key, Value>.Put, _ key: Key) -> Bool {
        let now = time.elapsed()
        return state.withLock { state in
            state.statistics.unfit += 1
            state.writing = put.hidesRemoval ? (key, .remove) : nil
            // With the circuit breaker not closed, this work was the probe. Record a failure, because the store is not
            // asked.
            if !put.hidesRemoval, !state.breaker.isClosed { state.breaker.failed(at: now) }
            return put.hidesRemoval
        }
    }

    // MARK: Looking up

    private func read() {
        var connection: (any SpillConnection)?
        while !isStopped {
            let now = time.elapsed()
            let next: (number: UInt64, key: Key, generation: UInt64, mayTry: Bool)? = state.withLock { state in
                while !state.readOrder.isEmpty {
                    let number = state.readOrder.removeFirst()
                    guard let read = state.reads[number] else { continue }
                    // Not when the look-up was queued: a change of the key drops a queued look-up, and a dropped probe
                    // reports no result to the circuit breaker.
                    return (number, read.key, state.generation, state.breaker.mayTry(at: now))
                }
                return nil
            }
            guard let next else {
                reading.park()
                continue
            }
            answer(next.number, next.mayTry ? find(next.key, next.generation, &connection) : nil)
        }
    }

    private func find(_ key: Key, _ generation: UInt64, _ connection: inout (any SpillConnection)?) -> Found {
        let record = record(generation), keyBytes = encodeKey(key)
        do throws(SpillError) {
            let open = if let connection { connection } else { try store.connect(within: limits.readTimeout) }
            connection = open
            let bytes = try open.get(record.name(of: keyBytes), most: store.mostBytes, within: limits.readTimeout)
            succeeded()
            guard let bytes else {
                state.withLock { $0.statistics.misses += 1 }
                return .absent
            }
            do {
                guard let found = try record.value(of: keyBytes, in: bytes, at: time.wall()) else {
                    state.withLock { $0.statistics.misses += 1 }
                    return .expired
                }
                if let value = try codec.decode(found.bytes) { return .value(value, timeToLive: found.left.toLive) }
            } catch {}
            state.withLock { state in
                state.statistics.damaged += 1
                state.statistics.lastProblem =
                    "spill to \(store.name): received \(bytes.count) bytes that differ from the stored value; the value is loaded instead"
            }
            return .unknown
        } catch {
            if error.kind != .refused { connection = nil }
            failed(error)
            return .unknown
        }
    }

    /// Answers a look-up with what the store has; `nil` if the store was not asked.
    private func answer(_ number: UInt64, _ found: Found?) {
        let read = state.withLock { state -> Read? in
            guard let read = state.reads.removeValue(forKey: number) else { return nil }
            switch found {
            case .value?: state.statistics.hits += 1
            case .unknown?: state.statistics.unanswered += 1
            case nil: state.statistics.skipped += 1
            case .absent?, .expired?: break
            }
            return read
        }
        read?.waiting.resume(returning: found ?? .unknown)
    }

    // MARK: Time

    private func watchTime() {
        while !isStopped {
            let now = time.elapsed(), share = Double.random(in: 0.5...1)
            let (late, next): ([Read], Duration?) = state.withLock { state in
                let late = state.reads.filter { $0.value.deadline <= now }
                for number in late.keys { state.reads[number] = nil }
                if !late.isEmpty {
                    state.statistics.unanswered += late.count
                    state.statistics.lastProblem =
                        "spill to \(store.name): no reply to a look-up within \(limits.readTimeout)"
                    // One failure for any number of late look-ups: the store was slow once.
                    state.breaker.failed(at: now, share: share)
                }
                return (Array(late.values), state.reads.values.map(\.deadline).min())
            }
            for read in late { read.waiting.resume(returning: .unknown) }
            timing.park(atMost: next.map { max(.milliseconds(1), $0 - now) })
        }
    }
}
#endif
