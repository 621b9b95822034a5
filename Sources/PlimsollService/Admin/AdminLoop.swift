#if canImport(Glibc) && !PLIMSOLL_INERT
import Glibc
import Plimsoll
import PlimsollLinux

/// The event loop of an endpoint: wait, read, answer. The loop owns all connections, and no client can block it.
final class AdminLoop {
    private let server: AdminServer
    private let json = AdminJSON()
    private let connections: [AdminConnection]
    private let files: UnsafeMutableBufferPointer<pollfd>
    private var lastID: UInt64 = 0
    /// Time before which no connection is accepted, because the process had no file descriptor left.
    private var acceptsFrom = Duration.zero

    private static let rest = Duration.milliseconds(200)

    init(_ server: AdminServer) {
        self.server = server
        connections = (0..<server.bounds.connections).map { _ in AdminConnection(server.bounds) }
        files = .allocate(capacity: server.bounds.connections + 2)
        files.initialize(repeating: pollfd())
    }

    deinit { files.deallocate() }

    func run() {
        rehearse()
        while !server.isStopped { turn() }
        for connection in connections { connection.close() }
    }

    /// Answers one request as a warm-up. All code and memory for an answer are then in place before memory is short.
    private func rehearse() {
        let line = json.line(AdminRequest(.status))
        if let request = try? json.request(line.dropLast()) { _ = json.line(server.handler.answer(request)) }
    }

    private func turn() {
        let before = server.time.elapsed()
        files[0] = pollfd(fd: server.wakeup, events: Int16(POLLIN), revents: 0)
        files[1] = pollfd(fd: before < acceptsFrom ? -1 : server.socket.file, events: Int16(POLLIN), revents: 0)
        var wait = before < acceptsFrom ? acceptsFrom - before : .seconds(3600)
        for (index, connection) in connections.enumerated() {
            files[index + 2] = pollfd(fd: connection.file, events: connection.events, revents: 0)
            guard connection.isOpen else { continue }
            if connection.isReady { wait = .zero }
            if let (_, due) = connection.due { wait = min(wait, max(.zero, due - before)) }
        }
        _ = server.kernel.wait(for: files, nanoseconds: wait.inNanoseconds)
        let now = server.time.elapsed()
        if files[0].revents != 0 { _ = server.kernel.drain(server.wakeup) }
        for (id, line) in server.takeFinished() { finish(id, line, at: now) }
        for (index, connection) in connections.enumerated() where connection.isOpen {
            serve(connection, files[index + 2].revents, at: now)
        }
        if files[1].revents != 0 { accept(at: now) }
    }

    // MARK: Connections

    private func accept(at now: Duration) {
        // Accepts at most the backlog, so that open connections are served in between.
        for attempt in 0..<32 {
            guard let (file, peer) = server.socket.accept() else {
                if attempt == 0 { acceptsFrom = now + Self.rest }
                return
            }
            let isOurs = peer.user == geteuid() || peer.user == 0
            guard isOurs, let connection = connections.first(where: { !$0.isOpen }) else {
                let refusal =
                    isOurs
                    ? AdminRefusal(
                        .busy,
                        "cannot accept the connection because \(connections.count) are open, which is the limit; try again, or end a `plimsoll top`"
                    )
                    : AdminRefusal(
                        .forbidden,
                        "cannot answer user \(peer.user) because this service runs as user \(geteuid()); connect as that user or as root"
                    )
                // Count before the answer: a client that has read the answer may ask for the counts.
                server.tally.add(\.refused)
                let line = json.line(AdminAnswer(refusal))
                _ = line.withUnsafeBytes {
                    send(file, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT))
                }
                close(file)
                continue
            }
            lastID += 1
            connection.open(lastID, file, at: now)
            server.tally.add(\.connections)
        }
    }

    private func serve(_ connection: AdminConnection, _ events: Int16, at now: Duration) {
        if events & Int16(POLLHUP | POLLERR | POLLNVAL) != 0 { return gone(connection) }
        if events & Int16(POLLOUT) != 0, !connection.flush(at: now) { return gone(connection) }
        if events & Int16(POLLIN) != 0 {
            switch connection.read(at: now) {
            case .bytes, .nothing: break
            case .gone: return gone(connection)
            case .tooLong:
                return cutOff(
                    connection, "a request has at most \(server.bounds.line) bytes, its newline included", at: now)
            }
        }
        if connection.isReady { connection.nextLine(at: now) { receive($0, connection, at: now) } }
        guard connection.isOpen else { return }
        if let (due, instant) = connection.due, instant <= now { handle(due, connection, at: now) }
        if connection.isOpen, connection.isDone {
            if connection.hasRest { server.tally.add(\.malformed) }
            connection.close()
        }
    }

    private func handle(_ due: AdminConnection.Due, _ connection: AdminConnection, at now: Duration) {
        switch due {
        case .watch: show(connection, at: now)
        case .request:
            cutOff(
                connection,
                "cannot read the request because no newline came within \(server.bounds.request); end each request with a newline",
                at: now)
        case .idle, .answer:
            server.tally.add(\.cutOff)
            connection.close()
        }
    }

    /// Sends the reason if the socket buffer has room, then closes the connection.
    private func cutOff(_ connection: AdminConnection, _ why: String, at now: Duration) {
        server.tally.add(\.cutOff)
        server.tally.add(\.malformed)
        _ = connection.send(json.line(AdminAnswer(AdminRefusal(.malformed, why))), at: now)
        connection.close()
    }

    private func gone(_ connection: AdminConnection) {
        if connection.isOwed { server.tally.add(\.untaken) }
        connection.close()
    }

    // MARK: Requests

    private func receive(_ line: ArraySlice<UInt8>, _ connection: AdminConnection, at now: Duration) {
        connection.watch = nil
        do throws(AdminRefusal) {
            let request = try json.request(line)
            try server.handler.check(request)
            server.tally.add(\.requests)
            try carryOut(request, connection, at: now)
        } catch {
            switch error.code {
            case .malformed: server.tally.add(\.malformed)
            case .readOnly:
                server.tally.add(\.requests)
                server.tally.add(\.refused)
            case .forbidden, .busy: server.tally.add(\.refused)
            case .absent, .failed: break
            }
            reply(AdminAnswer(error), connection, at: now)
        }
    }

    private func carryOut(_ request: AdminRequest, _ connection: AdminConnection, at now: Duration) throws(AdminRefusal)
    {
        if request.command == .watch {
            guard connections.count(where: { $0.isOpen && $0.watch != nil }) < server.bounds.watchers else {
                throw AdminRefusal(
                    .busy,
                    "cannot watch because \(server.bounds.watchers) connections do, which is the limit; poll `status`, or end a `plimsoll top`"
                )
            }
            connection.watch = (.milliseconds(request.milliseconds ?? 1000), now)
            show(connection, at: now)
        } else if request.command.isSlow {
            guard server.changeWorker.take(connection.id, request, waiting: server.bounds.changes) else {
                throw AdminRefusal(
                    .busy,
                    "cannot queue the \(request.command.isChange ? "change" : "census") because \(server.bounds.changes) requests wait already, which is the limit; try again"
                )
            }
            connection.isBusy = true
        } else {
            reply(server.handler.answer(request), connection, at: now)
        }
    }

    /// Sends the next answer to a watching connection. A watcher that has not yet read the last answer is skipped:
    /// `due` is then the deadline of the pending answer.
    private func show(_ connection: AdminConnection, at now: Duration) {
        guard let every = connection.watch?.every else { return }
        connection.watch?.due = now + every
        reply(server.handler.answer(AdminRequest(.watch)), connection, at: now)
    }

    private func finish(_ id: UInt64, _ line: [UInt8], at now: Duration) {
        guard let connection = connections.first(where: { $0.id == id }) else { return }
        connection.isBusy = false
        if !connection.send(line, at: now) { gone(connection) }
    }

    private func reply(_ answer: AdminAnswer, _ connection: AdminConnection, at now: Duration) {
        if !connection.send(json.line(answer), at: now) { gone(connection) }
    }
}
#endif
