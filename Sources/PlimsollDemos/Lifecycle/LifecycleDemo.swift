import Glibc
import Plimsoll
import PlimsollLifecycle
import PlimsollSupervisor

/// Takes a service process through the life cycle and records the observations.
final class LifecycleDemo {
    /// Time for the service's tasks in the background, and then to stop.
    static let allowance = Duration.seconds(3), grace = Duration.seconds(1)
    /// Ticker periods in the foreground and in the background.
    static let period = Duration.milliseconds(250), backgroundPeriod = Duration.seconds(1)
    /// A slow (emulated) machine needs seconds for steps that are immediate elsewhere.
    private static let patience = Duration.seconds(30)
    private static let pollInterval = Duration.milliseconds(10)

    private let directory: String
    private let group: FreezerGroup?
    private let start: Duration
    private let signals: SignalQueue
    private let client = RequestClient()
    private var record = LifecycleRecord()
    private var timeline = LifecycleTimeline()
    private var child: ChildProcess?
    private var run = 0

    /// Creates the demo.
    ///
    /// - Parameters:
    ///   - directory: empty directory for the service's state and configuration.
    ///   - group: group for freezing the service; `nil` to leave that out, for the reason in `refusal`.
    init(directory: String, group: FreezerGroup?, refusal: String?) {
        self.directory = directory
        self.group = group
        signals = SignalQueue()
        start = SteadyClock.now
        record.freezerRefusal = refusal
    }

    private var now: Duration { SteadyClock.now - start }
    private var file: String { directory + "/service.conf" }

    /// Plays the whole demo.
    ///
    /// - Throws: `Failure` if the demo failed to complete.
    func play() throws -> LifecycleRecord {
        defer { cleanUp() }
        let client = client
        guard let thread = PlainThread({ client.run() }) else {
            throw Failure.failed("cannot start a thread for the client")
        }
        defer {
            client.stop()
            thread.join()
        }
        try writeFile("threads=1")
        try launch(.launch)
        try pass(.seconds(2.5))

        try ask(.interrupt, for: .interrupt, until: "the process is inactive") { $0 == .inactive }
        try pass(.seconds(1.5))
        try ask(.resume, for: .resume, until: "the process is active again") { $0 == .active }
        try pass(.seconds(1))

        try ask(.task, for: .task)
        try see("the task has begun") { !$0.events(.began).isEmpty }
        try ask(.background, for: .background, until: "the process is in the background") { $0 == .background }
        try see("the task has ended") { !$0.events(.ended).isEmpty }
        try pass(.seconds(1))

        try suspend(.stop, .go, for: .seconds(4), isFreezer: false)
        try pass(.seconds(2))
        try ask(.foreground, for: .foreground, until: "the process is active again") { $0 == .active }
        try pass(.seconds(2))

        if group != nil {
            try suspend(.freeze, .thaw, for: .seconds(3), isFreezer: true)
            try pass(.seconds(2))
        } else if let refusal = record.freezerRefusal {
            timeline.report("skipped the freeze by the control group: \(refusal)", record, at: now)
        }
        try terminate(.terminate)
        try launch(.relaunch)
        try pass(.seconds(1))
        try terminate(.over)
        return record
    }

    // MARK: Actions on the service

    private func launch(_ step: LifecycleRecord.Step) throws {
        begin(step, "launched")
        run += 1
        let arguments = [
            "_lifecycle-service", "--directory", directory, "--allowance", "\(Self.allowance.inSeconds)", "--grace",
            "\(Self.grace.inSeconds)",
        ]
        child =
            try group?.start(arguments, endsWithParent: true)
            ?? ChildProcess(ChildProcess.itself, ["plimsoll"] + arguments, readsOutput: true, endsWithParent: true)
        let run = run
        try see("the service listens") { !$0.events(.listening, run: run).isEmpty }
        try see("the scenes are connected") {
            Set($0.events(.transition, run: run).compactMap(\.event.unit)).count == 3
        }
    }

    /// Sends a request to the service, and waits until the process is in the given state.
    private func ask(
        _ request: LifecycleRequest, for step: LifecycleRecord.Step, until what: String = "",
        _ isThere: ((LifecycleState) -> Bool)? = nil
    )
        throws
    {
        begin(step, "requested: \(request.rawValue)")
        child?.send(request.rawValue)
        guard let isThere else { return }
        try see(what) {
            isThere($0.events(.transition).last { $0.event.unit == LifecycleEvent.process }?.event.state ?? .notRunning)
        }
    }

    /// Stops the process for a while, during which the watched file changes.
    private func suspend(
        _ begin: LifecycleRecord.Step, _ end: LifecycleRecord.Step, for length: Duration, isFreezer: Bool
    ) throws {
        guard let child else { return }
        let resumes = record.events(.resumed).count
        self.begin(begin, isFreezer ? "frozen by its control group" : "SIGSTOP")
        if isFreezer {
            try write { group throws(GroupError) in try group.freeze() }
            try see("the kernel reports the group frozen") { [group] _ in group?.isFrozen ?? false }
        } else {
            child.signal(SIGSTOP)
        }
        let from = now
        try changeFile(isFreezer: isFreezer)
        try pass(from + length - now)
        // Recorded before the process runs again, so that no event can precede the step.
        self.begin(end, isFreezer ? "thawed" : "SIGCONT")
        record.suspensions.append(.init(from: from, to: now, isFreezer: isFreezer))
        if isFreezer { try write { group throws(GroupError) in try group.thaw() } } else { child.signal(SIGCONT) }
        try see("the process has noticed its suspension") { $0.events(.resumed).count > resumes }
    }

    private func write(_ body: (FreezerGroup) throws(GroupError) -> Void) throws {
        guard let group else { return }
        do { try body(group) } catch { throw Failure.failed("\(error)") }
    }

    /// Changes the file. The first time, many changes end in a new text; the second time, the file ends with the
    /// previous text.
    private func changeFile(isFreezer: Bool) throws {
        let before = ControlFile.text(file) ?? "", changes = isFreezer ? 2 : 200
        for number in 1...changes {
            try writeFile(isFreezer ? (number == 1 ? "threads=0" : before) : "threads=\(number)")
        }
        if !isFreezer { record.fileChanges = changes }
        timeline.report(
            "the watched file changes \(changes) times" + (isFreezer ? ", back to its first content" : ""), record,
            at: now)
    }

    private func writeFile(_ text: String) throws { try File.write(text, to: file) }

    /// Ends the service in good order.
    private func terminate(_ step: LifecycleRecord.Step) throws {
        guard let child else { return }
        begin(step, "SIGTERM")
        child.signal(SIGTERM)
        try see("the process has ended") { _ in child.poll() != nil }
        try poll()
        let status = child.ending?.status ?? 0
        record.endings.append((now, status))
        self.child = nil
        if step == .terminate {
            begin(.end, "ended with status \(status)")
        } else {
            timeline.report("ended with status \(status)", record, at: now)
        }
    }

    // MARK: Watching

    private func begin(_ step: LifecycleRecord.Step, _ text: String) {
        let at = now
        record.steps[step] = at
        timeline.report(text, record, at: at)
    }

    /// Lets time pass.
    private func pass(_ length: Duration) throws {
        let end = now + length
        while now < end { try poll() }
    }

    private func see(_ what: String, _ isSo: (LifecycleRecord) -> Bool) throws {
        let deadline = now + Self.patience
        while !isSo(record) {
            guard now < deadline else {
                throw Failure.failed("not observed within \(Text.number(Self.patience.inSeconds)) s: \(what)")
            }
            if let ending = child?.poll(), child?.output?.isAtEnd ?? true, !isSo(record) {
                throw Failure.failed("the service ended with status \(ending.status) before \(what)")
            }
            try poll()
        }
    }

    private func poll() throws {
        for line in child?.output?.lines() ?? [] {
            guard let event = try? JSONLine.decode(LifecycleEvent.self, from: line) else { continue }
            if event.kind == .listening, let port = event.number { client.ask(at: UInt16(port)) }
            let seen = LifecycleRecord.Seen(run: run, at: event.at - start, event: event)
            record.seen.append(seen)
            timeline.report(seen, record)
        }
        for request in client.taken() {
            let request = LifecycleRecord.Request(at: request.at - start, outcome: request.outcome)
            record.requests.append(request)
            timeline.report(request, record)
        }
        if let signal = signals.next(within: Self.pollInterval), SignalQueue.endings.contains(signal) {
            throw Failure.failed("interrupted; the service is ended")
        }
    }

    /// Ends the service in any state, even while the process is stopped or frozen.
    private func cleanUp() {
        child?.end(within: .zero)
        if let group, !group.remove() { Output.problem("cannot remove \(group.directory)") }
    }
}
