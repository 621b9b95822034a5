#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc
import Plimsoll
import Synchronization

/// The thread of a supervisor's link. Connects, sends messages, waits, and follows orders. After a disconnection it
/// pauses and reconnects.
final class LinkLoop: Sendable {
    typealias Answer = CheckedContinuation<Bool, Never>

    private struct State {
        var isStopped = false
        var status = SupervisorLink.Status()
        /// Requests not sent yet.
        var questions: [(message: ChildMessage, answer: Answer?)] = []
        /// Requests sent and not answered yet, by the sequence number of the line.
        var awaited: [UInt64: (message: ChildMessage, answer: Answer?)] = [:]
        /// The granted keep-alive, to be requested again on the next connection.
        var granted: ChildMessage?
        /// True if the manager requests to be frozen, and the request was not sent yet.
        var wantsSuspension = false
        /// Calls to make once the supervisor has been sent the present state.
        var waiting: [@Sendable () -> Void] = []
    }

    /// Wake-up that ends a wait, because there is a message to send.
    let wakeup: Wakeup
    private let path: String
    let kernel: any Kernel
    private let orders: LinkOrders
    let time: Timekeeper
    private let firstPause: LinkPause
    private let state = Mutex(State())

    /// Interval for checking values that cause no wake-up: caches, tasks and locks.
    private static let pollInterval = Duration.seconds(1)
    /// A connection that lasted this long resets the back-off.
    private static let goodSession = Duration.seconds(10)

    init(
        _ manager: ResourceManager, _ path: String, _ kernel: any Kernel, _ pause: LinkPause, _ orders: LinkOrders,
        time: Timekeeper = .running
    ) {
        (self.path, self.kernel, self.orders, firstPause, self.time) = (path, kernel, orders, pause, time)
        wakeup = Wakeup(kernel)
    }

    // MARK: From any thread

    var status: SupervisorLink.Status { state.withLock { $0.status } }

    func stop() {
        state.withLock { $0.isStopped = true }
        wakeup.ring()
    }

    func ask(_ message: ChildMessage, _ answer: Answer) {
        let isTaken = state.withLock { state in
            // Even without a supervisor: the next connection must not ask for wake-ups that are no longer wanted.
            if message == .keepAlive(every: .zero) { state.granted = nil }
            guard !state.isStopped, state.status.isConnected else { return false }
            state.questions.append((message, answer))
            return true
        }
        if isTaken { wakeup.ring() } else { answer.resume(returning: false) }
    }

    /// Requests that the supervisor freeze this process. Returns the reason if that is impossible. Called by the
    /// pressure loop: allocates nothing and never waits.
    func requestSuspension() -> String? {
        let isConnected = state.withLock { state in
            guard !state.isStopped, state.status.isConnected else { return false }
            state.wantsSuspension = true
            return true
        }
        guard isConnected else {
            return "no supervisor is connected that could suspend the process; it stays quiesced"
        }
        wakeup.ring()
        return nil
    }

    /// Sends the present state to the supervisor. Returns when that was sent, or can't be sent now;
    /// in the latter case the loop sends later. Never waits for the supervisor.
    func sendNow() async {
        await withCheckedContinuation { done in
            if !sendNow({ done.resume() }) { done.resume() }
        }
    }

    /// As above, and blocks the calling thread meanwhile, for at most a second.
    func sendNowBlocking() {
        let isSent = Parker()
        if sendNow({ isSent.unpark() }) { isSent.park(atMost: .seconds(1)) }
    }

    /// Returns false if there is no connection; `done` is not called then.
    private func sendNow(_ done: @escaping @Sendable () -> Void) -> Bool {
        let isTaken = state.withLock { state in
            guard !state.isStopped, state.status.isConnected else { return false }
            state.waiting.append(done)
            return true
        }
        if isTaken { wakeup.ring() }
        return isTaken
    }

    var isStopped: Bool { state.withLock { $0.isStopped } }

    // MARK: The thread

    func run() {
        var pause = firstPause
        while !isStopped {
            let began = time.elapsed()
            let (problem, isGood) = connect()
            if isGood || time.elapsed() - began >= Self.goodSession { pause.recovered() }
            lose(problem)
            rest(pause.taken())
        }
        lose("the link was closed")
    }

    /// Fails all requests of the lost connection, because they will not be answered.
    private func lose(_ problem: String) {
        let (unanswered, waiting) = state.withLock { state in
            (state.status.isConnected, state.status.problem, state.status.level) = (false, problem, .normal)
            defer { (state.questions, state.awaited, state.waiting, state.wantsSuspension) = ([], [:], [], false) }
            return (state.questions.compactMap(\.answer) + state.awaited.values.compactMap(\.answer), state.waiting)
        }
        for answer in unanswered { answer.resume(returning: false) }
        for done in waiting { done() }
        orders.lostSupervisor()
    }

    /// Runs one connection from beginning to end. Returns the reason for the end, and true if the supervisor sent any
    /// line other than a refusal.
    private func connect() -> (problem: String, isGood: Bool) {
        let file = kernel.connect(path)
        // A full queue means that a supervisor is there. So retry soon, without growing pauses.
        guard file >= 0 else { return ("cannot connect to \(path): \(KernelError(number: -file))", file == -EAGAIN) }
        defer { kernel.close(file) }
        var stream = LineStream(file)
        var diff = LinkStateDiff()
        var isRefused = false
        guard stream.send({ ChildMessage.hello(version: MessageLine.version).encoded($0) }) else {
            // The supervisor may have refused already, and sent a reason.
            return (receive(&stream, &isRefused) ?? "\(path) accepts no data", false)
        }
        state.withLock { state in
            state.status.isConnected = true
            state.status.connections += 1
            // No answer to deliver: the caller that was granted the keep-alive was answered before.
            if let granted = state.granted { state.questions.append((granted, nil)) }
        }
        while !isStopped {
            send(&stream, &diff)
            guard wait(for: file, writing: !stream.outbox.isEmpty, atMost: Self.pollInterval) else { continue }
            if let problem = receive(&stream, &isRefused) { return (problem, stream.received > 0 && !isRefused) }
        }
        _ = stream.send { ChildMessage.bye.encoded($0) }
        return ("the link was closed", true)
    }

    /// Sends new messages, as far as there is room; the rest stays new for the next time.
    private func send(_ stream: inout LineStream, _ diff: inout LinkStateDiff) {
        // Only tasks that came before the state is read. They resume even if the supervisor does not read.
        let waiting = state.withLock { exchange(&$0.waiting, []) }
        defer { for done in waiting { done() } }
        guard stream.flush() else { return }
        let snapshot = orders.read(), now = time.elapsed()
        if snapshot.needsSave { orders.saveAgain { [wakeup] in wakeup.ring() } }
        if snapshot.isSavedAwaited { diff.forgetSaved() }
        for message in snapshot.messages where diff.isChange(message, at: now) {
            guard stream.send({ message.encoded($0) }) else { return }
            diff.wasSent(message, at: now)
        }
        if state.withLock({ $0.wantsSuspension }) {
            guard stream.send({ ChildMessage.suspend.encoded($0) }) else { return }
            state.withLock { $0.wantsSuspension = false }
        }
        while let question = state.withLock({ $0.questions.first }) {
            guard stream.send({ question.message.encoded($0) }) else { return }
            let number = stream.sent
            state.withLock { state in
                state.questions.removeFirst()
                state.awaited[number] = question
            }
        }
    }

    /// Processes received lines. Returns the reason if the connection must end.
    private func receive(_ stream: inout LineStream, _ isRefused: inout Bool) -> String? {
        switch stream.read() {
        case .gone: return "the supervisor closed the connection"
        case .nothing: return nil
        case .bytes: break
        }
        do throws(MessageError) {
            while let line = try stream.nextLine() {
                let (sequence, message) = try SupervisorMessage.decode(line)
                guard stream.follows(sequence) else {
                    return "the supervisor sent line \(sequence) after \(stream.received)"
                }
                switch message {
                case nil: break
                case .refused(let reason):
                    isRefused = true
                    return "the supervisor refused the connection: \(reason.rawValue)"
                case .keepAlive(let number, let isAccepted): answer(number, isAccepted)
                case .some(let message):
                    if case .level(let level) = message { state.withLock { $0.status.level = level } }
                    orders.obey(message) { [wakeup] in wakeup.ring() }
                }
            }
        } catch {
            return "the supervisor sent \(error)"
        }
        return nil
    }

    private func answer(_ number: UInt64, _ isAccepted: Bool) {
        let question = state.withLock { state in
            let question = state.awaited.removeValue(forKey: number)
            // The link repeats a granted request on each connection, also after a refusal: another process of the unit
            // may have had the older link.
            if isAccepted, let message = question?.message, message != .keepAlive(every: .zero) {
                state.granted = message
            } else if question?.answer != nil {
                state.granted = nil
            }
            return question
        }
        question?.answer?.resume(returning: isAccepted)
    }
}

extension LinkLoop {
    func rest(_ pause: Duration) {
        let end = time.elapsed() + pause
        while !isStopped {
            let left = end - time.elapsed()
            guard left > .zero else { return }
            _ = wait(for: -1, writing: false, atMost: left)
        }
    }

    /// Blocks until `file` is ready, a wake-up comes or the time is over. Returns true if `file` is ready.
    func wait(for file: Int32, writing: Bool, atMost limit: Duration) -> Bool {
        if wakeup.file < 0, wakeup.repair() { return false }
        return withUnsafeTemporaryAllocation(of: pollfd.self, capacity: 2) { files in
            files[0] = pollfd(fd: wakeup.file, events: Int16(POLLIN), revents: 0)
            files[1] = pollfd(fd: file, events: Int16(writing ? POLLIN | POLLOUT : POLLIN), revents: 0)
            // Without an eventfd the flag is checked periodically, until one can be made.
            let limit = wakeup.file < 0 ? min(limit, .milliseconds(50)) : limit
            let ready = kernel.wait(for: files, nanoseconds: max(0, limit.inNanoseconds))
            if ready < 0 { usleep(10_000) }  // No memory for a wait: sleep rather than spin.
            wakeup.waited(files[0].revents)
            return ready > 0 && files[1].revents != 0
        }
    }
}
#endif
