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
    }

    /// Ends a wait: there is something to tell.
    let bell: WakeBell
    private let path: String
    private let kernel: any Kernel
    private let orders: LinkOrders
    private let time = Timekeeper.running
    private let firstPause: LinkPause
    private let state = Mutex(State())

    /// How often it looks for what nobody rings for: caches, tasks and locks.
    private static let look = Duration.seconds(1)
    /// A connection that lasted so long was a good one.
    private static let goodSession = Duration.seconds(10)

    init(_ manager: ResourceManager, _ path: String, _ kernel: any Kernel, _ pause: LinkPause, _ orders: LinkOrders) {
        (self.path, self.kernel, self.orders, firstPause) = (path, kernel, orders, pause)
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

    private var isStopped: Bool { state.withLock { $0.isStopped } }

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
        let unanswered = state.withLock { state in
            (state.status.isConnected, state.status.problem, state.status.level) = (false, problem, .normal)
            defer { (state.questions, state.awaited) = ([], [:]) }
            return state.questions.compactMap(\.answer) + state.awaited.values.compactMap(\.answer)
        }
        for answer in unanswered { answer.resume(returning: false) }
    }

    private func rest(_ pause: Duration) {
        let end = time.elapsed() + pause
        while !isStopped {
            let left = end - time.elapsed()
            guard left > .zero else { return }
            _ = wait(for: -1, writing: false, atMost: left)
        }
    }

    /// Blocks until `file` is ready, the bell rings or the time is over; whether `file` is ready.
    private func wait(for file: Int32, writing: Bool, atMost limit: Duration) -> Bool {
        withUnsafeTemporaryAllocation(of: pollfd.self, capacity: 2) { files in
            files[0] = pollfd(fd: bell.file, events: Int16(POLLIN), revents: 0)
            files[1] = pollfd(fd: file, events: Int16(writing ? POLLIN | POLLOUT : POLLIN), revents: 0)
            // Without an eventfd the flag is looked at now and then.
            let limit = bell.file < 0 ? min(limit, .milliseconds(50)) : limit
            let ready = kernel.wait(for: files, nanoseconds: max(0, limit.inNanoseconds))
            if ready < 0 { usleep(10_000) }  // No memory for a wait: sleep rather than spin.
            if files[0].revents == 0 { _ = bell.take() } else if !bell.heard(files[0].revents) { bell.repair() }
            return ready > 0 && files[1].revents != 0
        }
    }

    /// One connection, from its beginning to its end; why it ended, and whether the supervisor has said anything but no.
    private func connect() -> (problem: String, isGood: Bool) {
        let file = kernel.connect(path)
        guard file >= 0 else { return ("connecting to \(path): \(KernelError(number: -file))", false) }
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
        guard stream.flush() else { return }
        let (messages, isSavedAwaited) = orders.look()
        if isSavedAwaited { news.forgetSaved() }
        for message in messages where news.isNews(message) {
            guard stream.send({ message.encoded($0) }) else { return }
            news.wasTold(message)
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
