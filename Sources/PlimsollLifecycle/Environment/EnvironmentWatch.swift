import Plimsoll
import Synchronization

/// Reads the watched kinds and compares each reading with the one before. Counts the watches of each kind, and decides
/// when to read.
///
/// Mutable state: all behind one lock, never held during a call of the source or around user code. `onChange` is called
/// under the lock, so changes of a kind are recorded in the order in which they were found. `onChange` only adds to
/// slots.
final class EnvironmentWatch: Sendable {
    private struct Interest {
        var count = 0
        /// Delay between an event and the reading, so that a writer that writes in several steps has finished.
        var quiet: Duration
        var reading: EnvironmentValue?
        /// Number of raw events since the last reading.
        var events = 0
        /// Value of `events` when the alarm was set; `nil` if no alarm is set.
        var eventsAtAlarm: Int?
        /// Number of times the alarm was postponed because events kept coming.
        var delays = 0
        /// Number of the latest reading whose result was used, or of the last one begun before the watch. A reading
        /// that began earlier and ends later is out of date.
        var used: Int
        var failures = 0
        /// Number of the failed reading whose retry is awaited; `nil` if none is. At most one retry is awaited, however
        /// many readings fail meanwhile.
        var retried: Int?
    }

    private let state = Mutex<[EnvironmentChange.Kind: Interest]>([:])
    /// The number of readings begun, of all kinds. Relaxed: changed and read under the lock.
    private let begun = Atomic<Int>(0)
    private let source: (any EnvironmentSource)?
    private let alarms: Alarms
    private let threads: HandlerThreads
    private let onBaseline: @Sendable (EnvironmentChange.Kind, EnvironmentValue?) -> Void
    private let onChange: @Sendable (EnvironmentChange) -> Void
    private let onChanged: @Sendable () -> Void

    /// Events postpone a reading by at most ten quiet times in all.
    private static let mostDelays = 9

    /// Creates a watch of `source`.
    ///
    /// - Parameters:
    ///   - onBaseline: receives the value when watching begins, and `nil` when watching has ended. Called under the
    ///     lock.
    ///   - onChange: records a change. Called under the lock.
    ///   - onChanged: called after `onChange`, outside the lock.
    init(
        source: (any EnvironmentSource)?, alarms: Alarms, threads: HandlerThreads,
        onBaseline: @escaping @Sendable (EnvironmentChange.Kind, EnvironmentValue?) -> Void,
        onChange: @escaping @Sendable (EnvironmentChange) -> Void, onChanged: @escaping @Sendable () -> Void
    ) {
        (self.source, self.alarms, self.threads) = (source, alarms, threads)
        (self.onBaseline, self.onChange, self.onChanged) = (onBaseline, onChange, onChanged)
        source?.start { [weak self] kind, events in self?.received(kind, events) }
    }

    deinit {
        guard let source else { return }
        for (kind, interest) in state.withLock({ $0 }) { for _ in 0..<interest.count { source.unwatch(kind) } }
    }

    /// Begins to watch `kind`. Returns false if no source knows `kind`. The present value is the baseline for later
    /// changes.
    func add(_ kind: EnvironmentChange.Kind, quiet: Duration? = nil) -> Bool {
        guard let source, kind.isRead, source.watch(kind) else { return false }
        let isFirst = state.withLock { state in
            let new = Interest(quiet: quiet ?? Self.quiet(of: kind), used: begun.load(ordering: .relaxed))
            state[kind, default: new].count += 1
            if let quiet { state[kind]?.quiet = quiet }
            return state[kind]?.reading == nil
        }
        if isFirst { read(kind) }
        return true
    }

    func remove(_ kind: EnvironmentChange.Kind) {
        guard let source else { return }
        state.withLock { state in
            guard let count = state[kind]?.count else { return }
            state[kind]?.count = count - 1
            guard count == 1 else { return }
            state[kind] = nil
            // Under the lock, so that a new watch of the kind reports its baseline afterwards.
            onBaseline(kind, nil)
        }
        source.unwatch(kind)
    }

    /// Returns the number of watches of `kind`. For tests.
    func count(of kind: EnvironmentChange.Kind) -> Int { state.withLock { $0[kind]?.count ?? 0 } }

    /// Returns the default quiet time. The clock and the date are read at once. Writers of the other kinds may not be
    /// done yet.
    private static func quiet(of kind: EnvironmentChange.Kind) -> Duration {
        switch kind {
        case .clock, .day: .zero
        default: .milliseconds(100)
        }
    }

    /// Returns the last reading of `kind`, or reads now if there is no watch.
    func value(of kind: EnvironmentChange.Kind) -> EnvironmentValue? {
        state.withLock { $0[kind]?.reading } ?? source?.read(kind)
    }

    /// Reads all watched kinds. Blocks the calling thread.
    func refresh() {
        source?.collect()
        for kind in state.withLock({ Array($0.keys) }) { read(kind) }
    }

    // MARK: From event to change

    private func received(_ kind: EnvironmentChange.Kind, _ events: Int) {
        let wait: Duration? = state.withLock { state in
            guard var interest = state[kind] else { return nil }
            interest.events += events
            let isFirst = interest.eventsAtAlarm == nil
            if isFirst { interest.eventsAtAlarm = interest.events }
            state[kind] = interest
            return isFirst ? interest.quiet : nil
        }
        if let wait { setAlarm(kind, wait) }
    }

    private func setAlarm(_ kind: EnvironmentChange.Kind, _ wait: Duration) {
        if wait == .zero { return readSoon(kind) }
        alarms.set(.timer, after: wait) { [weak self] in self?.readIfQuiet(kind) }
    }

    private func readIfQuiet(_ kind: EnvironmentChange.Kind) {
        let wait: Duration? = state.withLock { state in
            guard let interest = state[kind], interest.delays < Self.mostDelays,
                interest.events != interest.eventsAtAlarm
            else { return nil }
            state[kind]?.eventsAtAlarm = interest.events
            state[kind]?.delays += 1
            return interest.quiet
        }
        if let wait { setAlarm(kind, wait) } else { readSoon(kind) }
    }

    /// Schedules a reading on a handler thread, because reading may block.
    private func readSoon(_ kind: EnvironmentChange.Kind) {
        threads.run { [weak self] in
            self?.state.withLock { state in
                state[kind]?.eventsAtAlarm = nil
                state[kind]?.delays = 0
            }
            self?.read(kind)
        }
    }

    private func read(_ kind: EnvironmentChange.Kind) {
        let number: Int? = state.withLock { state in
            guard state[kind] != nil else { return nil }
            return begun.wrappingAdd(1, ordering: .relaxed).newValue
        }
        guard let number, let source else { return }
        let value = source.read(kind)
        let (hasChanged, retry) = state.withLock { state -> (Bool, Duration?) in
            guard var interest = state[kind], number > interest.used else { return (false, nil) }
            defer { state[kind] = interest }
            guard let value else {
                guard interest.retried == nil else { return (false, nil) }
                interest.retried = number
                interest.failures += 1
                return (false, .seconds(1 << min(interest.failures - 1, 6)))
            }
            interest.used = number
            interest.failures = 0
            interest.retried = nil
            let (before, events) = (interest.reading, interest.events)
            interest.reading = value
            interest.events = 0
            if interest.eventsAtAlarm != nil { interest.eventsAtAlarm = 0 }
            guard let before else {
                onBaseline(kind, value)
                return (false, nil)
            }
            if before.isSame(as: value) { return (false, nil) }
            onChange(EnvironmentChange(kind, from: before, to: value, count: events))
            return (true, nil)
        }
        if hasChanged { onChanged() }
        if let retry { alarms.set(.timer, after: retry) { [weak self] in self?.retry(kind, number) } }
    }

    /// Reads `kind` again, unless a reading has succeeded since the one of that number.
    private func retry(_ kind: EnvironmentChange.Kind, _ number: Int) {
        let isAwaited = state.withLock { state in
            guard state[kind]?.retried == number else { return false }
            state[kind]?.retried = nil
            return true
        }
        if isAwaited { readSoon(kind) }
    }

    /// The signals that the source listens to, and by which means.
    var signals: [Capabilities.Signal] { source?.signals ?? [] }
}
