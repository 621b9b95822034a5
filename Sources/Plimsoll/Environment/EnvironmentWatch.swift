import Synchronization

/// The side of the environment that looks: who is interested in what, when it is read, and what is different from the reading before.
///
/// Mutable state: all behind one lock, which is held for no call of the source's and around no user code. `onChange` is called within it, so that changes
/// of a kind are put down in the order in which they were found; it only adds to slots.
final class EnvironmentWatch: Sendable {
    private struct Interest {
        var count = 0
        /// How long after an event it is read, so that one who writes in pieces has finished.
        var quiet: Duration
        var reading: EnvironmentValue?
        /// Raw events since the last reading.
        var events = 0
        /// Of these, those that had come when the alarm was set; `nil` if none is set.
        var eventsAtAlarm: Int?
        /// How often the alarm has been put off because events kept coming.
        var delays = 0
        /// Readings begun, and the last one begun that has been made use of: one that began earlier and ends later is out of date.
        var begun = 0, used = 0
        var failures = 0
    }

    private let state = Mutex<[EnvironmentChange.Kind: Interest]>([:])
    private let source: (any EnvironmentSource)?
    private let alarms: Alarms
    private let threads: HandlerThreads
    private let onBaseline: @Sendable (EnvironmentChange.Kind, EnvironmentValue?) -> Void
    private let onChange: @Sendable (EnvironmentChange) -> Void
    private let onChanged: @Sendable () -> Void

    /// As long as ten quiet times events may put a reading off.
    private static let mostDelays = 9

    /// - Parameters:
    ///   - onBaseline: what holds when watching begins; `nil` when it has ended.
    ///   - onChange: takes a change down; within the lock.
    ///   - onChanged: called after it, outside.
    init(
        source: (any EnvironmentSource)?, alarms: Alarms, threads: HandlerThreads,
        onBaseline: @escaping @Sendable (EnvironmentChange.Kind, EnvironmentValue?) -> Void,
        onChange: @escaping @Sendable (EnvironmentChange) -> Void, onChanged: @escaping @Sendable () -> Void
    ) {
        (self.source, self.alarms, self.threads) = (source, alarms, threads)
        (self.onBaseline, self.onChange, self.onChanged) = (onBaseline, onChange, onChanged)
        source?.start { [weak self] kind, events in self?.heard(kind, events) }
    }

    deinit {
        guard let source else { return }
        for (kind, interest) in state.withLock({ $0 }) { for _ in 0..<interest.count { source.unwatch(kind) } }
    }

    /// Whether there is a source for `kind`. What holds now is what later changes are told against.
    func add(_ kind: EnvironmentChange.Kind, quiet: Duration? = nil) -> Bool {
        guard let source, Self.isRead(kind), source.watch(kind) else { return false }
        let isFirst = state.withLock { state in
            state[kind, default: Interest(quiet: quiet ?? Self.quiet(of: kind))].count += 1
            if let quiet { state[kind]?.quiet = quiet }
            return state[kind]?.reading == nil
        }
        if isFirst { read(kind) }
        return true
    }

    func remove(_ kind: EnvironmentChange.Kind) {
        guard let source else { return }
        let isLast = state.withLock { state in
            guard let count = state[kind]?.count else { return false }
            state[kind]?.count = count - 1
            if count == 1 { state[kind] = nil }
            return count == 1
        }
        if isLast { onBaseline(kind, nil) }
        source.unwatch(kind)
    }

    /// Number of those for whom `kind` is watched. For tests.
    func count(of kind: EnvironmentChange.Kind) -> Int { state.withLock { $0[kind]?.count ?? 0 } }

    /// Whether a source may know of it; the rest is only posted.
    private static func isRead(_ kind: EnvironmentChange.Kind) -> Bool {
        switch kind {
        case .clock, .timeZone, .day, .locale, .file, .device, .power: true
        case .limit, .credentials, .protectedData, .custom: false
        }
    }

    /// The clock and the date are told at once; the rest is written by somebody who may not be done.
    private static func quiet(of kind: EnvironmentChange.Kind) -> Duration {
        switch kind {
        case .clock, .day: .zero
        default: .milliseconds(100)
        }
    }

    /// What `kind` was when it was last read, or is now if nobody watches it.
    func value(of kind: EnvironmentChange.Kind) -> EnvironmentValue? {
        state.withLock { $0[kind]?.reading } ?? source?.read(kind)
    }

    /// Reads all that is watched. Blocks the calling thread.
    func refresh() {
        source?.collect()
        for kind in state.withLock({ Array($0.keys) }) { read(kind) }
    }

    // MARK: From event to change

    private func heard(_ kind: EnvironmentChange.Kind, _ events: Int) {
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
            guard let interest = state[kind], interest.delays < Self.mostDelays, interest.events != interest.eventsAtAlarm else { return nil }
            state[kind]?.eventsAtAlarm = interest.events
            state[kind]?.delays += 1
            return interest.quiet
        }
        if let wait { setAlarm(kind, wait) } else { readSoon(kind) }
    }

    /// Not here, as reading may block.
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
        let begun: Int? = state.withLock { state in
            guard state[kind] != nil else { return nil }
            state[kind]?.begun += 1
            return state[kind]?.begun
        }
        guard let begun, let source else { return }
        let value = source.read(kind)
        let (hasChanged, retry) = state.withLock { state -> (Bool, Duration?) in
            guard var interest = state[kind], begun > interest.used else { return (false, nil) }
            defer { state[kind] = interest }
            guard let value else {
                interest.failures += 1
                return (false, .seconds(1 << min(interest.failures - 1, 6)))
            }
            interest.used = begun
            interest.failures = 0
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
        if let retry { alarms.set(.timer, after: retry) { [weak self] in self?.readSoon(kind) } }
    }

    /// What is listened to and how.
    var signals: [Capabilities.Signal] { source?.signals ?? [] }
}
