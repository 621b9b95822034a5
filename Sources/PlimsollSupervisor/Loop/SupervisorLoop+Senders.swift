import Glibc
import Plimsoll
import PlimsollLinux

// The sockets for messages from units, and the processes that may send for them.
extension SupervisorLoop {
    // MARK: - Sockets

    /// Returns the users that may reach a unit's sockets from the start.
    private func access(of unit: ServiceUnit) -> SocketAccess {
        if let owner = unit.socketOwner { return .user(owner) }
        // A process started by root may become any user before the first message.
        return geteuid() == 0 ? .everyone : .user(geteuid())
    }

    /// Opens separate sockets for a unit that the supervisor starts, so messages of other units can't delay this one's.
    /// The paths are the same in each supervisor of this directory, so processes from a former supervisor find the
    /// sockets.
    func openSockets(of run: UnitRun) throws {
        guard run.isOurs, !run.isObserved else { return }
        let name = run.unit.name, access = access(of: run.unit)
        let socket = try NotifySocket(directory: directory, unit: name, access: access) { [unowned self] sender in
            unit(of: sender.process, user: sender.user)?.unit.name == name ? name : nil
        }
        try channel.listen(for: name, access)
        if case .user = access { run.pressure.admit(access) }
        run.messages.notices = socket
        supervisor.queue.watch(socket.file, for: .readable, Token.of(run.id, Token.messages))
    }

    func closeSockets(of run: UnitRun) {
        if let socket = run.messages.notices { supervisor.queue.unwatch(socket.file) }
        run.messages.notices = nil
        channel.stopListening(for: run.unit.name)
        channel.disconnect(run.unit.name)
        for part in [Token.messages, Token.pressure] { resting[Token.of(run.id, part)] = nil }
    }

    /// Opens the sockets to any user until the user of the new process is known.
    func readmit(_ run: UnitRun) { admit(access(of: run.unit), to: run) }

    private func admit(_ access: SocketAccess, to run: UnitRun) {
        run.messages.notices?.admit(access)
        channel.admit(access, for: run.unit.name)
        if run.unit.socketOwner != nil { run.pressure.admit(access) }
    }

    /// Restricts the sockets to the main process's user. A process that isn't root can't change its user, so no other
    /// user needs access.
    func learnUser(_ user: UInt32, of process: Int32, _ run: UnitRun) {
        guard user != 0, process == run.child?.pid, run.unit.socketOwner == nil, run.unit.notifyAccess == .main,
            geteuid() == 0
        else { return }
        admit(.user(user), to: run)
    }

    /// Closes open sockets to other users once these have sent too many descriptors that can't be closed.
    private func shutOut(_ run: UnitRun) {
        guard run.unit.socketOwner == nil, let socket = run.messages.notices, socket.access == .everyone,
            ForeignCloser.shared.isFull("")
        else {
            return
        }
        let user = run.child.flatMap { ProcessTable.users(of: $0.pid).max() } ?? geteuid()
        report(
            run.unit,
            "restricted the sockets to user \(user): descriptors of other users cannot be closed; set socketOwner"
        )
        admit(.user(user), to: run)
    }

    /// Returns the variables that name the unit's sockets to its processes.
    func socketEnvironment(of run: UnitRun) -> [String: String] {
        (run.messages.notices?.environment ?? notices.environment).merging(channel.environment(of: run.unit.name)) {
            $1
        }
    }

    // MARK: - Senders

    /// Returns the unit of a process that the kernel names, with its user, as a sender. Every process on the machine
    /// may send, so this must be cheap.
    func unit(of process: Int32, user: UInt32) -> UnitRun? {
        let main = byProcess[process]
        let sender = senders.sender(process, as: user, isKnown: main != nil, at: now) {
            guard let run = main ?? member(process) else { return .init(run: nil, users: []) }
            return .init(run: run.id, users: ProcessTable.users(of: process))
        }
        guard let run = main ?? sender.run.flatMap({ runs[$0] }), main != nil || run.isAlive else { return nil }
        // The sender may have ended, and a unit's process may have the reused number (K38). A process with another user
        // did not send the message. The supervisor's own user is exempt.
        return user == geteuid() || sender.users.contains(user) ? run : nil
    }

    private func member(_ process: Int32) -> UnitRun? {
        for name in ProcessTable.units(of: process, prefix: supervisor.root.prefix) {
            if let run = byName[name], run.isAlive, run.group.processes.contains(process) { return run }
        }
        // Groups made by others, and units without any: few.
        return runs.values.first {
            $0.isAlive && !$0.group.directories.contains(where: \.isOurs) && $0.group.processes.contains(process)
        }
    }

    /// Returns true if a process of the unit may send for the unit, under `notifyAccess`.
    func maySend(_ process: Int32, user: UInt32, for run: UnitRun) -> Bool {
        switch run.unit.notifyAccess {
        case .none: return false
        case .all: return true
        case .main:
            // A group has no known main process.
            if case .group = run.unit.origin { return true }
            if user == 0 || process == run.child?.pid { return true }
            // Another process of the main process's user could make the main process send the same.
            guard let main = run.child else { return user == geteuid() }
            return senders.sender(main.pid, as: user, isKnown: true, at: now) {
                .init(run: run.id, users: ProcessTable.users(of: main.pid))
            }.users
                .contains(user)
        }
    }

    /// Returns the unit that a link may represent.
    func linkUnit(_ process: Int32, _ user: UInt32) -> String? {
        guard let run = unit(of: process, user: user) else { return nil }
        guard maySend(process, user: user, for: run) else {
            refuse(process, user, of: run, "a link")
            return nil
        }
        learnUser(user, of: process, run)
        return run.unit.name
    }

    func refuse(_ process: Int32, _ user: UInt32, of run: UnitRun, _ what: String) {
        let access = run.unit.notifyAccess
        let who = access == .none ? "no process" : "the main process, its user and root"
        report(
            run.unit,
            "refused \(what) of process \(process) of user \(user): notifyAccess: \(access.rawValue) allows \(who)"
        )
    }

    // MARK: - Receiving

    /// Reads messages from a unit's socket, or from the one for units that the supervisor did not start. Unread
    /// messages keep the socket readable.
    func receiveNotices(of run: UnitRun? = nil) {
        let token = run.map { Token.of($0.id, Token.messages) } ?? Token.notices
        guard resting[token] == nil, let socket = run.map(\.messages.notices) ?? notices else { return }
        if let run { shutOut(run) }
        for _ in 0..<Self.mostAtOnce {
            let mayGoOn = run?.messages.allowance.spend(at: now) ?? commonAllowance.spend(at: now)
            guard mayGoOn, !socket.isBlocked else { return rest(token, socket.file) }
            guard take(socket.receiveOne()) else { return }
        }
    }

    /// Reads all pending messages before an action on a unit for a missing message.
    func receivePending(_ run: UnitRun) {
        for socket in [run.messages.notices, notices] {
            for _ in 0..<Self.mostAtOnce { guard let socket, take(socket.receiveOne()) else { break } }
        }
    }

    /// The maximum number of datagrams per turn, so that no unit monopolises the thread.
    private static let mostAtOnce = 64

    /// - Returns: true if there may be more.
    private func take(_ arrival: NotifySocket.Arrival) -> Bool {
        switch arrival {
        case .nothing: return false
        case .dropped: return true
        case .notice(let notice):
            if let run = notice.unit.flatMap({ byName[$0] }) { take(notice, of: run) }
            return true
        }
    }

    // MARK: - Pauses

    /// Stops reading a socket for a while. Only the senders on that socket wait, and no other unit does.
    func rest(_ token: EventQueue.Token, _ file: Int32) {
        supervisor.queue.unwatch(file)
        resting[token] = (file, now + Self.restTime)
    }

    private static let restTime = Duration.milliseconds(50)

    func wakeRested() {
        for (token, (file, until)) in resting where now >= until {
            resting[token] = nil
            supervisor.queue.watch(file, for: .readable, token)
        }
    }
}
