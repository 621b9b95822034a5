import Synchronization

/// State shared by a manager and its loop. Each part synchronizes itself.
package final class ManagerParts: Sendable {
    package let purgeables = PurgeableRegistry()
    package let observers = ObserverRegistry()
    let journal = Journal()
    let inbox = Inbox()
    let saves = SaveRegistry()
    package let threads = HandlerThreads()
    let heartbeat: Heartbeat
    package let alarms: Alarms
    private let gapListener: UInt64
    package let tasks: BackgroundTaskRegistry
    let joined = JoinedParts()
    /// The background tasks of scenes.
    package let sceneTasks: SceneTasks
    /// Asks purgeables for their status.
    let poll: PurgeablePoll
    /// Accounting of the memory that caches declare on the heap.
    let meter: ChargeMeter
    /// Accounting of the memory that volatile purgeables declare.
    let volatileMeter: ChargeMeter
    /// Registers a purgeable for release under pressure.
    package let registrar: @Sendable (any Purgeable, PurgeablePlace) -> Registration
    package let source: any PressureSource
    package let time: Timekeeper
    /// Passes the pressure level on to the joined parts.
    let admission: AdmissionRelay
    let purger: Purger
    let keeper: VolatileKeeper
    /// Divides memory for caches, and idle memory among volatile caches.
    let divider: Divider
    let volatileDivider: Divider
    /// Purge worker: releases memory, and looks after volatile memory.
    let purgeWorker: Worker
    /// Delivery worker: notifies observers and listeners.
    let deliveryWorker: Worker
    /// Ends the process with a last line. Tests replace this function.
    package let exit: @Sendable (Int32, String) -> Void

    let shutdown: ShutdownPlan
    /// Asks a supervisor to freeze this process.
    let suspension = SuspensionRequest()
    let policy: Mutex<PressurePolicy>
    /// True if actions are only decided and reported. Relaxed: the loop reads the flag each turn, and a delay of
    /// one turn does no harm.
    let isDryRun: Atomic<Bool>
    let published = PublishedLevel()
    let lastTurn = Mutex<(reading: PressureReading, assessment: PressureAssessment)?>(nil)
    let firstTurn = FirstTurn()
    let room = PublishedRoom()
    /// The recorder of the loop's turns; `nil` for none. The loop asks once, when it begins.
    let recorder = Mutex<(any TurnRecorder)?>(nil)
    /// The evidence on how the previous run ended, from a record that outlived that run; `nil` for none.
    package var previousEnd: PreviousEnd? {
        get { foundEnd.withLock { $0 } }
        set { foundEnd.withLock { $0 = newValue } }
    }
    private let foundEnd = Mutex<PreviousEnd?>(nil)
    let deferred: DeferredTasks
    /// The budgets of requests.
    let requests: BudgetRegistry

    init(
        source: any PressureSource, policy: PressurePolicy, time: Timekeeper, requests: BudgetRegistry,
        exit: @escaping @Sendable (Int32, String) -> Void, allocator: any GiveBack = HeapAllocator.current
    ) {
        (self.source, self.time, self.requests) = (source, time, requests)
        heartbeat = Heartbeat(time: time)
        alarms = Alarms(time: time, heartbeat: heartbeat)
        poll = PurgeablePoll(alarms: alarms, threads: threads)
        shutdown = ShutdownPlan(heartbeat: heartbeat)
        isDryRun = Atomic(policy.isDryRun)
        self.policy = Mutex(policy)
        tasks = BackgroundTaskRegistry(time: time, alarms: alarms, threads: threads, limits: policy.taskLimits)
        sceneTasks = SceneTasks(of: tasks, time: time, alarms: alarms, threads: threads)
        deferred = DeferredTasks(tasks: tasks, published: published, time: time)
        meter = ChargeMeter { source.wake() }
        volatileMeter = ChargeMeter(wakesWhenRefusing: false) { source.wake() }
        registrar = Self.registrar(of: purgeables, meter: meter, volatileMeter: volatileMeter, source: source)
        purger = Purger(registry: purgeables, source: source, time: time)
        keeper = VolatileKeeper(registry: purgeables, purger: purger, source: source, time: time, allocator: allocator)
        divider = Divider(registry: purgeables, meter: meter, time: time) { source.wake() }
        volatileDivider = Divider(of: .volatile, registry: purgeables, meter: volatileMeter, time: time) {
            source.wake()
        }
        admission = AdmissionRelay(joined)
        deliveryWorker = Self.deliveryWorker(admission, observers, journal, time: time)
        purgeWorker = Self.purgeWorker(purger, keeper, [divider, volatileDivider], journal, delivery: deliveryWorker)
        self.exit = exit
        // A joined part that suspends work takes over, and releases the timers once work has resumed.
        gapListener = alarms.whenGapEnds { [tasks, alarms] gap in
            tasks.gapEnded(gap)
            alarms.release()
        }
        listenToTasks(time)
    }

    // The factories below take what they capture as arguments: no worker refers to these parts, which own the workers.

    /// Returns the function that registers a purgeable.
    private static func registrar(
        of purgeables: PurgeableRegistry, meter: ChargeMeter, volatileMeter: ChargeMeter, source: any PressureSource
    ) -> @Sendable (any Purgeable, PurgeablePlace) -> Registration {
        // Without volatile memory, volatile purgeables use ordinary memory, bounded like that of other caches.
        let volatileMeter = VolatileMemory.isSupported ? volatileMeter : meter
        return { purgeable, place in
            let entry = PurgeableRegistry.Entry(purgeable, place, meter: meter, volatileMeter: volatileMeter)
            purgeables.add(entry)
            source.wake()
            return Registration(close: {}) {
                purgeables.remove(entry)
                // Before the rest: a call under way may restrict the cache, or give a share.
                entry.close()
                entry.liftForGood()
                guard entry.shared != nil else { return }
                entry.stopSharing()
                // The next round decides anew, without this cache.
                (entry.pool == .heap ? meter : volatileMeter).share(from: [], lacking: 0)
            }
        }
    }

    /// Returns the worker that applies admission, then notifies observers, then listeners of reports.
    private static func deliveryWorker(
        _ admission: AdmissionRelay, _ observers: ObserverRegistry, _ journal: Journal, time: Timekeeper
    ) -> Worker {
        Worker("plimsoll-notify") { turn in
            guard admission.apply(turn, time: time), observers.deliver(turn, time: time) else { return }
            journal.deliver(turn, time: time)
        }
    }

    /// Returns the worker that releases memory, then looks after volatile memory, then divides memory among caches.
    private static func purgeWorker(
        _ purger: Purger, _ keeper: VolatileKeeper, _ dividers: [Divider], _ journal: Journal, delivery: Worker
    ) -> Worker {
        Worker("plimsoll-purge") { turn in
            guard purger.run(turn, done: { report in if journal.add(report) { delivery.request() } }) else { return }
            guard keeper.run(turn) else { return }
            for divider in dividers { guard divider.run(turn) else { return } }
        }
    }

    deinit {
        tasks.detach()
        // The closure refers to the tasks and the alarms. The tasks refer to the delivery worker, which admits work by the
        // joined parts, and these to the tasks.
        alarms.ignoreGaps(gapListener)
        joined.removeAll()
        for divider in [divider, volatileDivider] { divider.end() }
    }

    /// Records given-up tasks in the journal. Tasks expired for pressure are left out: `PressureResponse` reports
    /// those with their evidence.
    private func listenToTasks(_ time: Timekeeper) {
        tasks.listen { [journal, deliveryWorker, published, deferred, shutdown] listeners in
            listeners.whenAsked = { names, count in shutdown.asked(names, count) }
            listeners.whenGivenUp = { reason, names in
                shutdown.givenUp(names)
                guard reason != .pressure else { return }
                var report = ActionReport(
                    eventID: 0, action: .expireBackgroundTasks(grace: .zero), level: published.level, evidence: [],
                    began: time.elapsed())
                report.outcome = .overran(names)
                if journal.add(report) { deliveryWorker.request() }
            }
            listeners.whenOpened = { [weak deferred] in deferred?.poll() }
            listeners.whenGapEnded = { [weak deferred] in deferred?.gapEnded() }
        }
    }

    /// Reports the loop's heartbeat.
    ///
    /// - Parameter next: time within which the loop comes by again; `nil` for no promise.
    func comeBy(next: Duration?) {
        guard time.onStep == nil, let gap = heartbeat.beat(.loop, next: next) else { return }
        alarms.noticed(gap)
    }

    /// Adds a report to the journal and requests delivery to the listeners.
    func report(_ report: ActionReport) {
        if journal.add(report) { deliveryWorker.request() }
    }

    var level: PressureLevel { published.level }

    /// The last moves of memory among caches, oldest first.
    var moves: [Divider.Move] { (divider.moves + volatileDivider.moves).sorted { $0.at < $1.at } }

    /// Requests the rounds of the division that are due. Returns false if none is. Allocates nothing.
    func requestRounds(at now: Duration) -> Bool {
        let isDue = divider.request(at: now), isVolatileDue = volatileDivider.request(at: now)
        return isDue || isVolatileDue
    }

    /// Publishes the loop's latest reading and assessment. Called by the loop only.
    func publish(_ reading: PressureReading, _ assessment: PressureAssessment) {
        lastTurn.withLock { $0 = (reading, assessment) }
        room.publish(assessment.room)
        publish(assessment.level, assessment.evidence)
    }

    func publish(_ level: PressureLevel, _ evidence: PressureEvidence = []) {
        if level != published.level { journal.tally.moved(to: level, evidence) }
        if published.publish(level) { deferred.poll() }
    }

    /// Time until a handler has overrun its budget.
    func timeUntilAttention(at now: Duration, budget: Duration) -> Duration {
        min(
            purgeWorker.timeUntilStuck(at: now, budget: budget) ?? .seconds(3600),
            deliveryWorker.timeUntilStuck(at: now, budget: budget) ?? .seconds(3600))
    }
}

/// Creates the background tasks of scenes, and knows those of the scenes that exist.
package final class SceneTasks: Sendable {
    private struct Entry {
        weak var tasks: BackgroundTaskRegistry?
    }

    private let process: BackgroundTaskRegistry
    private let time: Timekeeper
    private let alarms: Alarms
    private let threads: HandlerThreads
    private let entries = Mutex<[Entry]>([])

    init(of process: BackgroundTaskRegistry, time: Timekeeper, alarms: Alarms, threads: HandlerThreads) {
        self.process = process
        self.time = time
        self.alarms = alarms
        self.threads = threads
    }

    var all: [BackgroundTaskRegistry] { entries.withLock { $0.compactMap(\.tasks) } }

    /// Creates the background tasks of one scene, which hands work over where the process does.
    package func make() -> BackgroundTaskRegistry {
        let tasks = BackgroundTaskRegistry(
            time: time, alarms: alarms, threads: threads, limits: process.limits, handovers: process.handovers,
            notice: process.notice, width: 4)
        entries.withLock { entries in
            entries.removeAll { $0.tasks == nil }
            entries.append(Entry(tasks: tasks))
        }
        return tasks
    }

    /// Asks the background tasks of the process and of all scenes to stop.
    ///
    /// - Parameters:
    ///   - reason: reason passed to the handlers.
    ///   - grace: time after which the remaining tasks are given up.
    ///   - done: receives the names of the tasks given up: once for the process, and once for each scene.
    func expireAll(
        _ reason: ExpirationReason, within grace: Duration, done: @escaping @Sendable ([String]) -> Void
    ) {
        process.expire(reason, within: grace, done: done)
        for tasks in all { tasks.expire(reason, within: grace, done: done) }
    }

    /// Asks the background tasks of the process and of all scenes to stop, blocks for at most `grace` until none of
    /// these tasks runs, and gives up the rest.
    ///
    /// - Returns: the names of the tasks given up.
    package func expireAllAndWait(_ reason: ExpirationReason, within grace: Duration) -> [String] {
        let deadline = alarms.heartbeat.running + grace
        let scenes = all, parker = Parker(), outcomes = Mutex<[[String]]>([])
        // All tasks are asked before the first wait, because they share the time.
        for tasks in scenes {
            tasks.expire(reason, within: grace) { names in
                outcomes.withLock { $0.append(names) }
                parker.unpark()
            }
        }
        let names = process.expireAndWait(reason, within: grace)
        // No task begins during a sweep. After the sweep's end, live tasks are later ones, which were not asked.
        for tasks in scenes where tasks.gate.withLock({ $0.sweep != nil }) {
            _ = tasks.expireAndWait(reason, within: max(.zero, deadline - alarms.heartbeat.running))
        }
        // The thread that gives tasks up tells the names a moment later.
        while outcomes.withLock({ $0.count }) < scenes.count { alarms.wait(on: parker, atMost: .milliseconds(500)) }
        return names + outcomes.withLock { $0 }.flatMap { $0 }
    }
}

/// The headroom that the loop last measured, readable from any thread.
final class PublishedRoom: Sendable {
    // Relaxed: an independent value that orders no other memory access. Negative means unknown.
    private let bytes = Atomic<Int>(-1)

    var room: ByteCount? {
        let bytes = bytes.load(ordering: .relaxed)
        return bytes < 0 ? nil : ByteCount(bytes)
    }

    func publish(_ room: ByteCount?) { bytes.store(room.map { max(0, $0.bytes) } ?? -1, ordering: .relaxed) }
}

/// Requests from other threads to the loop.
final class Inbox: Sendable {
    private struct State {
        var isStopped = false
        var asked: (level: PressureLevel, duration: Duration)?
        var simulation: (level: PressureLevel, until: Duration)?
    }

    private let state = Mutex(State())

    var isStopped: Bool { state.withLock { $0.isStopped } }
    func stop() { state.withLock { $0.isStopped = true } }
    func simulate(_ level: PressureLevel, for duration: Duration) { state.withLock { $0.asked = (level, duration) } }

    /// Raises `assessment` to the simulated level and marks the evidence as simulated.
    func simulate(on assessment: inout PressureAssessment) {
        let level: PressureLevel? = state.withLock { state in
            if let asked = state.asked {
                state.simulation = asked.level == .normal ? nil : (asked.level, assessment.at + asked.duration)
                state.asked = nil
            }
            if let simulation = state.simulation, assessment.at >= simulation.until { state.simulation = nil }
            return state.simulation?.level
        }
        guard let level, level > assessment.observed else { return }
        assessment.measured = PressureAssessment.Measured(level: assessment.level, observed: assessment.observed)
        assessment.observed = level
        // A simulated level has no hold time: the simulation ends at a time of its own.
        if level >= assessment.level { (assessment.heldUntil, assessment.heldFor) = (nil, nil) }
        assessment.level = max(assessment.level, level)
        assessment.present = max(assessment.present, level)
        assessment.evidence.insert(.simulated)
    }
}
