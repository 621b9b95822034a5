import Glibc
import Plimsoll
import Synchronization

/// The thread of a supervisor's link: connect, tell, wait, obey; after a loss pause and connect again.
final class LinkLoop: Sendable {
    typealias Answer = CheckedContinuation<Bool, Never>

    private struct State {
        var isStopped = false
        var status = SupervisorLink.Status()
        /// Asked for and not sent yet.
        var questions: [(message: ChildMessage, answer: Answer?)] = []
        /// Sent and not answered yet, by the number of the line.
        var awaited: [UInt64: (message: ChildMessage, answer: Answer?)] = [:]
        /// What was granted, to be asked for again by the next connection.
        var granted: ChildMessage?
        /// The manager asks to stand still, and the supervisor has not been told.
        var wantsStandstill = false
        /// Who goes on once it has been told how things are now.
        var waiting: [CheckedContinuation<Void, Never>] = []
    }

    /// Ends a wait: there is something to tell.
    let bell: WakeBell
    private let path: String
    let kernel: any Kernel
    private let orders: LinkOrders
    let time: Timekeeper
    private let firstPause: LinkPause
    private let state = Mutex(State())

    /// How often it looks for what nobody rings for: caches, tasks and locks.
    private static let look = Duration.seconds(1)
    /// A connection that lasted so long was a good one.
    private static let goodSession = Duration.seconds(10)

    init(
        _ manager: ResourceManager, _ path: String, _ kernel: any Kernel, _ pause: LinkPause, _ orders: LinkOrders, time: Timekeeper = .running
    ) {
        (self.path, self.kernel, self.orders, firstPause, self.time) = (path, kernel, orders, pause, time)
        bell = WakeBell(kernel)
    }

    // MARK: From any thread

    var status: SupervisorLink.Status { state.withLock { $0.status } }

    func stop() {
        state.withLock { $0.isStopped = true }
        bell.ring()
    }

    func ask(_ message: ChildMessage, _ answer: Answer) {
        let isTaken = state.withLock { state in
            guard !state.isStopped, state.status.isConnected else { return false }
            state.questions.append((message, answer))
            return true
        }
        if isTaken { bell.ring() } else { answer.resume(returning: false) }
    }

    /// Has the supervisor asked to make this process stand still; why it can't be. Called by the pressure loop: allocates nothing and waits for nothing.
    func askForStandstill() -> String? {
        let isConnected = state.withLock { state in
            guard !state.isStopped, state.status.isConnected else { return false }
            state.wantsStandstill = true
            return true
        }
        guard isConnected else { return "no supervisor is connected that could make this process stand still: it stays quiesced" }
        bell.ring()
        return nil
    }

    /// Has the supervisor told how things are now; returns when that was sent, or can't be. Never waits for the supervisor.
    func tellNow() async {
        await withCheckedContinuation { done in
            let isTaken = state.withLock { state in
                guard !state.isStopped, state.status.isConnected else { return false }
                state.waiting.append(done)
                return true
            }
            if isTaken { bell.ring() } else { done.resume() }
        }
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
        lose("it was closed")
    }

    /// Nobody will answer what was asked by this connection.
    private func lose(_ problem: String) {
        let (unanswered, waiting) = state.withLock { state in
            (state.status.isConnected, state.status.problem, state.status.level) = (false, problem, .normal)
            defer { (state.questions, state.awaited, state.waiting, state.wantsStandstill) = ([], [:], [], false) }
            return (state.questions.compactMap(\.answer) + state.awaited.values.compactMap(\.answer), state.waiting)
        }
        for answer in unanswered { answer.resume(returning: false) }
        for done in waiting { done.resume() }
    }

    /// One connection, from its beginning to its end; why it ended, and whether the supervisor has said anything but no.
    private func connect() -> (problem: String, isGood: Bool) {
        let file = kernel.connect(path)
        // A full queue says that a supervisor is there: tried again soon, and not after ever longer pauses.
        guard file >= 0 else { return ("connecting to \(path): \(KernelError(number: -file))", file == -EAGAIN) }
        defer { kernel.close(file) }
        var stream = LineStream(file)
        var news = LinkNews()
        var isRefused = false
        guard stream.send({ ChildMessage.hello(version: MessageLine.version).encoded($0) }) else {
            // It may have been turned away already, with a word.
            return (hear(&stream, &isRefused) ?? "\(path) takes nothing", false)
        }
        state.withLock { state in
            state.status.isConnected = true
            state.status.connections += 1
            // No answer: the one that was granted it has had his.
            if let granted = state.granted { state.questions.append((granted, nil)) }
        }
        while !isStopped {
            tell(&stream, &news)
            guard wait(for: file, writing: !stream.outbox.isEmpty, atMost: Self.look) else { continue }
            if let problem = hear(&stream, &isRefused) { return (problem, stream.heard > 0 && !isRefused) }
        }
        _ = stream.send { ChildMessage.bye.encoded($0) }
        return ("it was closed", true)
    }

    /// Sends what is new, as far as there is room; the rest is new the next time.
    private func tell(_ stream: inout LineStream, _ news: inout LinkNews) {
        // Those who came before the look; a supervisor that does not read holds up nobody.
        let waiting = state.withLock { state in
            defer { state.waiting = [] }
            return state.waiting
        }
        defer { for done in waiting { done.resume() } }
        guard stream.flush() else { return }
        let sight = orders.look()
        if sight.needsSave { orders.saveAgain { [bell] in bell.ring() } }
        if sight.isSavedAwaited { news.forgetSaved() }
        for message in sight.messages where news.isNews(message) {
            guard stream.send({ message.encoded($0) }) else { return }
            news.wasTold(message)
        }
        if state.withLock({ $0.wantsStandstill }) {
            guard stream.send({ ChildMessage.suspend.encoded($0) }) else { return }
            state.withLock { $0.wantsStandstill = false }
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

    /// Takes what has come; why the connection is of no more use, if so.
    private func hear(_ stream: inout LineStream, _ isRefused: inout Bool) -> String? {
        switch stream.read() {
        case .gone: return "the supervisor has closed the connection"
        case .nothing: return nil
        case .bytes: break
        }
        do throws(MessageError) {
            while let line = try stream.nextLine() {
                let (sequence, message) = try SupervisorMessage.decode(line)
                guard stream.follows(sequence) else { return "the supervisor sent line \(sequence) after \(stream.heard)" }
                switch message {
                case nil: break
                case .refused(let reason):
                    isRefused = true
                    return "the supervisor refuses the connection: \(reason.rawValue)"
                case .keepAlive(let number, let isAccepted): answer(number, isAccepted)
                case .some(let message):
                    if case .level(let level) = message { state.withLock { $0.status.level = level } }
                    orders.obey(message) { [bell] in bell.ring() }
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
            if let question { state.granted = isAccepted && question.message != .keepAlive(every: .zero) ? question.message : nil }
            return question
        }
        question?.answer?.resume(returning: isAccepted)
    }
}
