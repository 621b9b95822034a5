import CSimulatedThreads
import Plimsoll

@testable import PlimsollLifecycle
@testable import PlimsollLinux
@testable import PlimsollSupervisor

/// One process of a unit: a real manager with a real life cycle, on simulated threads and memory.
///
/// `@unchecked`: only the thread whose turn it is touches the members.
final class UnitProcess: @unchecked Sendable {
    private unowned let unit: SimulatedUnit
    private unowned let fleet: SimulatedFleet
    let group: Int32
    let memory: SimulatedMemory
    let manager: ResourceManager
    let lifecycle: Lifecycle
    private let orders: LinkOrders
    private let limiter = ConcurrencyLimiter("requests", limit: 8, inBackground: 0, waitingWhilePausedAtMost: .zero)
    private let link = Parker()
    /// Wakes the clients for a rush.
    let clients = Parker()
    /// True once no new work begins.
    private(set) var isEnding = false
    private(set) var isOver = false
    /// True if the kernel must kill the process.
    private(set) var isDoomed = false
    private var running: Task<Void, any Error>?
    private var tokens: [SimulatedToken] = []
    /// The state to preserve: a number that only grows.
    private var value: UInt64 = 0
    private var isInBackground = false
    private var handlers = 0

    init(_ unit: SimulatedUnit, _ fleet: SimulatedFleet) {
        (self.unit, self.fleet) = (unit, fleet)
        group = fleet.newGroup()
        let memory = SimulatedMemory(limit: unit.limit, group: group)
        self.memory = memory
        var policy = PressurePolicy()
        if Dice.chance(0.2) { policy.ladder = policy.ladder.terminating(after: .seconds(30), grace: .seconds(5)) }
        // The process ends itself as the kernel would end it.
        let exits = Exits()
        manager = ResourceManager(
            source: memory, policy: policy, time: SimulatedThreads.timekeeper, exit: { _, line in exits.exit(line) },
            environment: { _ in nil })
        lifecycle = Lifecycle(manager)
        orders = LinkOrders(manager) { [exits] grace in exits.stop(grace) }
        exits.process = self
        memory.running = { [manager] in manager.parts.alarms.heartbeat.running }
        memory.level = { [manager] in manager.level }
        memory.willRead = { [manager] next in _ = manager.parts.alarms.heartbeat.beat(.loop, next: next) }
        memory.whenExhausted = { [unowned self] in self.exhausted() }
        begin { [self] in main() }
    }

    /// The calls that end a process, made by the process's own threads.
    private final class Exits: @unchecked Sendable {
        weak var process: UnitProcess?
        func exit(_ line: String) { process?.exit(line) }
        func stop(_ grace: Duration) { process?.stop(within: grace) }
    }

    /// Starts a thread of this process.
    private func begin(_ body: @escaping @Sendable () -> Void) {
        let started = Thread.start("unit") { [group] in
            simulated_join_group(group)
            body()
        }
        guard started else { fatalError("no thread for a unit") }
    }

    // MARK: The program

    private func main() {
        let first = SimulatedCache("pages", .cheap), second = SimulatedCache("sessions", .expensive)
        memory.add(first)
        memory.add(second)
        manager.register(first)
        manager.register(second, purgesOnBackground: Dice.chance(0.3))
        lifecycle.pausables.add(limiter)
        lifecycle.preserve(
            "value", in: unit.store,
            snapshot: { [self] in
                let value = value
                SimulatedThreads.sleep(Dice.between(.zero, .milliseconds(3)))
                return withUnsafeBytes(of: value) { Array($0) }
            }, restore: { [self] in value = Self.number($0) })
        lifecycle.observe(
            "unit",
            onBackground: { [self] _ in
                handled(false) { isInBackground = true }
                if Dice.chance(0.3) { begin { [self] in comeBackSoon() } }
            },
            onForeground: { [self] _ in handled(true) { isInBackground = false } })
        manager.observe(from: .normal) { event in
            if event.level > .normal { Counts.warnings += 1 }
            SimulatedThreads.sleep(Dice.between(.zero, .milliseconds(Dice.chance(0.01) ? 7000 : 4)))
        }
        let suspension = manager.onSuspensionRequest { [unit, fleet] in
            unit.report.suspensionRequestedAt = SimulatedThreads.now
            fleet.kernelMustAct()
            return nil
        }
        let comingBack = lifecycle.onComingBack("link") { [self] in
            await withCheckedContinuation { done in
                waiting.append(done)
                link.unpark()
            }
        }
        let work = manager.onWork { [self] in
            let isTold = Parker()
            begins.append(isTold)
            link.unpark()
            isTold.park(atMost: .seconds(1))
        }
        running = Task { try await manager.run() }
        begin { [self] in talk() }
        begin { [self] in serve() }
        let end = Parker()
        Task { [running] in
            _ = await running?.result
            end.unpark()
        }
        end.park()
        isEnding = true
        comingBack.cancel()
        work.cancel()
        suspension.cancel()
        checkEnd()
        isOver = true
        link.unpark()
        clients.unpark()
        // The process exits, and the process's threads end.
        fleet.exited(unit, self)
        SimulatedThreads.sleep(.seconds(3600))
    }

    private func handled(_ before: Bool, _ body: () -> Void) {
        Invariants.trace("\(unit.name): \(before ? "comes back" : "leaves"), \(value)")
        handlers += 1
        Counts.steps += 1
        Invariants.check(handlers == 1, "\(unit.name): two steps of one observer at the same time")
        Invariants.check(isInBackground == before, "\(unit.name): a step was called twice")
        SimulatedThreads.sleep(Dice.between(.zero, .milliseconds(Dice.chance(0.02) ? 6000 : 50)))
        body()
        handlers -= 1
    }

    /// Checks the rules that hold once `run()` has returned.
    private func checkEnd() {
        Invariants.check(manager.backgroundTasks.isEmpty, "\(unit.name): background tasks outlive the manager")
        for token in tokens { token.check(isOver: true) }
        let isSaved = lifecycle.reports.last.map { $0.target == .notRunning && $0.isFullySaved } ?? false
        if isSaved { checkSaved("terminated") }
    }

    /// Checks that all state is on the medium.
    func checkSaved(_ cause: String) {
        let stored = (try? unit.store.read("value")).flatMap { $0 }.flatMap { PreservedState.unwrap($0)?.bytes } ?? []
        let saved = Self.number(stored)
        Invariants.check(saved == value, "\(unit.name) \(cause): \(saved) is saved of \(value)")
    }

    /// Returns the number that a snapshot holds as bytes, the least significant byte first.
    private static func number(_ bytes: [UInt8]) -> UInt64 { bytes.reversed().reduce(0) { $0 << 8 | UInt64($1) } }

    private func exhausted() {
        isDoomed = true
        fleet.kernelMustAct()
        SimulatedThreads.sleep(.seconds(86_400))
    }

    /// Ends the process at the last rung.
    private func exit(_ line: String) {
        Invariants.trace("\(unit.name): \(line)")
        isDoomed = true
        fleet.kernelMustAct()
        SimulatedThreads.sleep(.seconds(86_400))
    }

    // MARK: Orders of the supervisor

    /// Carries out an order, on the thread of the link.
    func order(_ message: SupervisorMessage) {
        inbox.append(message)
        link.unpark()
    }

    private var inbox: [SupervisorMessage] = []
    /// Steps out of the background that wait until the supervisor has been told.
    private var waiting: [CheckedContinuation<Void, Never>] = []
    /// Threads that begin a background task, and wait for the same.
    private var begins: [Parker] = []

    /// Ends the process in good order.
    func stop(within grace: Duration) {
        isEnding = true
        manager.beginShutdown(within: grace, taskShare: 0.5)
        running?.cancel()
    }

    /// Runs the thread of the link to the supervisor.
    private func talk() {
        var pause = Duration.seconds(1)
        while !isOver {
            let waiting = waiting, begins = begins
            (self.waiting, self.begins) = ([], [])
            while !inbox.isEmpty { orders.obey(inbox.removeFirst()) { [link] in link.unpark() } }
            keepShare()
            tell()
            for done in waiting { done.resume() }
            for isTold in begins { isTold.unpark() }
            let isShort = memory.truth > .normal || fleet.isShort
            let longest: Duration = isShort ? .seconds(4) : .seconds(unit.report.backgroundSince == nil ? 120 : 60)
            pause = link.park(atMost: min(pause, longest)) ? .seconds(1) : min(pause * 2, longest)
        }
    }

    /// Keeps to the share of the memory for caches, and reports the worth of memory, with a false report from time to
    /// time.
    private func keepShare() {
        unit.report.hasLink = true
        guard let share = unit.report.share else { return }
        var held = memory.caches.reduce(0) { $0 + $1.heldBytes }
        for cache in memory.caches where held > share.bytes ?? .max { held -= cache.release(held - (share.bytes ?? 0)) }
        let load = Dice.chance(0.1) ? 1e18 : Double(Dice.roll(1_000_000_000))
        let points = (1...4).map { part in
            MissCurve.Point(bytes: share.total / 4 * part + part, misses: load / Double(1 + part * Dice.roll(20)))
        }
        unit.report.worth = WorthOffer(
            held: Dice.chance(0.1) ? 1 << 60 : held, room: Dice.chance(0.1) ? 1 << 60 : memory.available / 2,
            curve: MissCurve(requests: load, points: points, isReliable: Dice.chance(0.9)))
        unit.report.worthAt = SimulatedThreads.now
    }

    /// Tells the supervisor the present state.
    private func tell() {
        let snapshot = orders.read()
        if snapshot.needsSave { orders.saveAgain { [link] in link.unpark() } }
        for message in snapshot.messages {
            switch message {
            case .tasks(let count, let until):
                (unit.report.tokens, unit.report.tokensEnd) = (count, until.map { SimulatedThreads.now + $0 })
            case .saved(let isSaved):
                if isSaved != unit.report.isSaved { Invariants.trace("\(unit.name): saved \(isSaved), \(value)") }
                unit.report.isSaved = isSaved
            case .state(let state):
                unit.report.isReady = state == .suspendedReady
                unit.report.backgroundSince = state == .foreground ? nil : unit.report.backgroundSince ?? SimulatedThreads.now
            default: break
            }
        }
    }

    // MARK: Work

    /// Runs the thread of the unit's clients, which is quiet most of the time.
    private func serve() {
        _ = wait { try await self.lifecycle.launch() }
        while !isEnding {
            let isRush = clients.park(atMost: Dice.after(mean: .seconds(900)))
            guard !isEnding else { return }
            switch isRush ? Dice.roll(5) : Dice.roll(8) {
            case 0: fillCaches()
            case 1: burst()
            case 2: leak()
            case 3: leaveAndComeBack()
            case 4, 5: work()
            case 6: change()
            default: if Dice.chance(0.1) { stop(within: .seconds(10)) } else { readFiles() }
            }
            checkLevel()
        }
    }

    private func fillCaches() {
        for _ in 0..<Dice.roll(60) where !isEnding {
            let cache = memory.caches[Dice.roll(memory.caches.count)]
            let room = memory.available - unit.limit / 10
            if room > 1 << 20 { cache.fill(min(room, Dice.roll(unit.limit / 25))) }
            SimulatedThreads.sleep(Dice.between(.milliseconds(5), .milliseconds(300)))
            checkLevel()
        }
        SimulatedThreads.sleep(Dice.after(mean: .seconds(5)))
        // The entries age.
        for cache in memory.caches { _ = cache.release(cache.heldBytes - Dice.roll(unit.limit / 10)) }
    }

    private func burst() {
        let size = Int(Double(unit.limit) * Dice.between(0.1, 0.6)), steps = 1 + Dice.roll(30)
        for _ in 0..<steps {
            memory.grow(size / steps)
            SimulatedThreads.sleep(Dice.between(.milliseconds(1), .milliseconds(100)))
        }
        checkLevel()
        SimulatedThreads.sleep(Dice.after(mean: .seconds(5)))
        checkLevel()
        memory.grow(-(size / steps) * steps)
        for cache in memory.caches { _ = cache.release(cache.heldBytes / 2) }
        SimulatedThreads.sleep(.seconds(12))
        checkLevel()
        checkRecovery()
    }

    /// Grows memory until most of the memory is used, and then releases the growth.
    private func leak() {
        var leaked = 0
        let most = Int(Double(unit.limit) * Dice.between(0.3, 0.85)), step = unit.limit / 100
        while leaked < most, !isEnding {
            memory.grow(step)
            leaked += step
            SimulatedThreads.sleep(Dice.between(.milliseconds(50), .seconds(1)))
            checkLevel()
        }
        SimulatedThreads.sleep(Dice.after(mean: .seconds(45)))
        checkLevel()
        memory.grow(-leaked)
    }

    private func readFiles() {
        for _ in 0..<Dice.roll(20) {
            memory.readFile(Dice.roll(unit.limit / 20))
            SimulatedThreads.sleep(Dice.between(.milliseconds(1), .milliseconds(50)))
        }
    }

    /// Begins background tasks with random behaviour.
    private func work() {
        for _ in 0..<1 + Dice.roll(12) where !isEnding {
            tokens.append(SimulatedToken(manager) { [self] in changeNow() })
            SimulatedThreads.sleep(Dice.after(mean: .milliseconds(400)))
        }
        tokens.removeAll { $0.check() }
        if Dice.chance(0.2) {
            _ = manager.expireBackgroundTasks(.operator, within: Dice.between(.zero, .seconds(3)))
        }
    }

    private func leaveAndComeBack() {
        guard wait({ try await self.lifecycle.enterBackground(cause: .operator) }) else { return }
        link.unpark()
        for _ in 0..<Dice.roll(3) { work() }
        SimulatedThreads.sleep(Dice.after(mean: .seconds(20)))
        // A request that overtakes another.
        if Dice.chance(0.3) {
            Task { _ = try? await lifecycle.enterBackground(cause: .operator) }
        }
        _ = wait { try await self.lifecycle.enterForeground(cause: .operator) }
        if lifecycle.state < .inactive { _ = wait { try await self.lifecycle.enterForeground(cause: .operator) } }
    }

    /// Brings the unit to the foreground for a client although others send the unit to the background.
    private func comeBackSoon() {
        SimulatedThreads.sleep(Dice.between(.zero, .seconds(6)))
        guard !isEnding, wait({ try await self.lifecycle.enterForeground(cause: .operator) }) else { return }
        change()
    }

    /// Changes the state by requests, as far as requests are admitted.
    private func change() {
        for _ in 0..<Dice.roll(10) where !isEnding {
            _ = wait {
                try await self.limiter.run {
                    SimulatedThreads.sleep(Dice.between(.zero, .milliseconds(30)))
                    self.changeNow()
                }
            }
        }
    }

    private func changeNow() { value += 1 }

    /// Runs an asynchronous call to the end. Returns false if the call threw an error.
    private func wait(_ body: @escaping @Sendable () async throws -> some Sendable) -> Bool {
        let end = Parker(), outcome = Outcome()
        Task {
            do { _ = try await body() } catch { outcome.isGood = false }
            end.unpark()
        }
        end.park()
        return outcome.isGood
    }

    private final class Outcome: @unchecked Sendable {
        var isGood = true
    }

    // MARK: Checks

    /// Checks that the level is not below the level of the bytes for longer than a turn takes.
    private func checkLevel() {
        guard !isEnding else { return }
        for level in [PressureLevel.warning, .critical] {
            guard let since = memory.dueSince[Int(level.rawValue)] else { continue }
            let late = memory.running() - since
            Invariants.check(
                manager.level >= level || late < .seconds(1),
                "\(unit.name): the level is \(manager.level), and \(level) has been due for \(late)")
        }
    }

    /// Checks that no part stays paused after memory has been free for long.
    private func checkRecovery() {
        guard memory.truth == .normal, memory.available > unit.limit / 2 else { return }
        let began = SimulatedThreads.now
        SimulatedThreads.sleep(.seconds(60))
        // The supervisor may have announced a level of the machine meanwhile. A unit that was frozen, if only at the end,
        // has not heard yet that the level is normal.
        guard !isEnding, SimulatedThreads.now - began < .milliseconds(60_001), memory.truth == .normal,
            memory.available > unit.limit / 2, fleet.calm > .seconds(60)
        else {
            return
        }
        Invariants.check(manager.level == .normal, "\(unit.name): \(manager.level) a minute after memory came back")
    }
}

extension LifecycleReport {
    /// True if all handlers ended and all state was saved.
    var isFullySaved: Bool { overran.isEmpty && unreached.isEmpty && failures.isEmpty }
}

/// A background task with random behaviour.
///
/// `@unchecked`: only the thread whose turn it is touches the members.
final class SimulatedToken: @unchecked Sendable {
    private enum Character: CaseIterable { case endsByItself, endsWhenAsked, endsLate, never }

    private var task: BackgroundTask?
    private var asked = 0
    private var hasEnded = false

    init(_ manager: ResourceManager, _ changes: @escaping @Sendable () -> Void) {
        let character = Character.allCases[Dice.roll(Character.allCases.count)]
        Counts.tokens += 1
        let task = manager.beginBackgroundTask("token") { [self] task, _ in
            asked += 1
            Counts.expirations += 1
            Invariants.check(asked == 1, "an expiration handler was called twice")
            switch character {
            case .endsByItself, .endsWhenAsked: break
            case .endsLate: SimulatedThreads.sleep(Dice.between(.zero, .seconds(8)))
            case .never: return
            }
            task.end()
            hasEnded = true
        }
        self.task = task
        guard task.isActive, character == .endsByItself else { return }
        let group = simulated_group()
        _ = Thread.start("worker") { [self] in
            simulated_join_group(group)
            SimulatedThreads.sleep(Dice.after(mean: .seconds(4)))
            if task.isActive { changes() }
            task.end()
            hasEnded = true
            Invariants.check(!task.isActive, "a task is active after its end")
        }
    }

    /// Checks what must hold at any time, and at the end of the manager. Returns true if the task has ended.
    @discardableResult
    func check(isOver: Bool = false) -> Bool {
        guard let task else { return true }
        Invariants.check(!isOver || !task.isActive, "a background task is active after its manager has ended")
        Invariants.check(!hasEnded || !task.isActive, "a background task is active after its end")
        return !task.isActive
    }
}
