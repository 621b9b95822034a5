import CPlimsollProcess
import Plimsoll
import PlimsollLifecycle
import PlimsollLinux
import Synchronization

/// Carries out requests against a manager. Callable from any thread. `purge` and `limit` take as long as the
/// purgeables take, `heap` as long as a census; `activate` takes as long as the transition to the foreground.
struct AdminCommandHandler: Sendable {
    let manager: ResourceManager
    let allowsChanges: Bool
    let counts: @Sendable () -> AdminEndpoint.Counts
    private let heap: HeapHistory
    private let program = CommandLine.arguments.first?.split(separator: "/").last.map(String.init) ?? ""

    init(
        manager: ResourceManager, allowsChanges: Bool, time: Timekeeper = .machine,
        counts: @escaping @Sendable () -> AdminEndpoint.Counts
    ) {
        (self.manager, self.allowsChanges, self.counts) = (manager, allowsChanges, counts)
        heap = HeapHistory(time: time)
    }

    static let readOnly = AdminRefusal(
        .readOnly,
        "read-only: set PLIMSOLL_ADMIN_ALLOWS_CHANGES=true, or `allowsChanges: true` where the service makes its AdminEndpoint, to allow purge, simulate, limit and activate"
    )

    /// Validates a request completely before any part is carried out.
    func check(_ request: AdminRequest) throws(AdminRefusal) {
        guard allowsChanges || !request.command.isChange else { throw Self.readOnly }
        switch request.command {
        case .status, .caches, .tasks: break
        case .explain: try Self.check(request.last, "last", in: 1...256)
        case .heap: try Self.check(request.rows, "rows", in: 1...1000)
        case .watch: try Self.check(request.milliseconds, "milliseconds", in: 100...60_000)
        case .purge:
            try Self.check(request.bytes, "bytes", in: 1...Int.max)
            _ = try selection(request)
        case .simulate: _ = try rehearsal(request)
        case .limit:
            try Self.check(request.bytes, "bytes", in: 1...Int.max)
            guard request.name != nil, request.bytes != nil else {
                throw AdminRefusal(.malformed, "limit needs the \"name\" of a cache and \"bytes\"")
            }
        case .activate:
            guard let name = request.name, !name.isEmpty else {
                throw AdminRefusal(.malformed, "activate needs a \"name\", the name of the request")
            }
        }
    }

    /// Carries out a request that passed `check`.
    func answer(_ request: AdminRequest) -> AdminAnswer {
        var answer = AdminAnswer()
        do throws(AdminRefusal) {
            switch request.command {
            case .status, .watch:
                sign(&answer)
                (answer.allowsChanges, answer.status, answer.endpoint) = (allowsChanges, manager.status, counts())
            case .caches:
                sign(&answer)
                answer.caches = manager.status.holders
            case .tasks:
                sign(&answer)
                answer.tasks = manager.tasksStatus
            case .explain:
                sign(&answer)
                answer.sentences = AdminExplanation(manager.status, last: request.last ?? .max).sentences
            case .heap:
                sign(&answer)
                // Volatile memory is no part of malloc's heap.
                let declared = manager.status.holders.reduce(0) {
                    $0 &+ max(0, $1.heldBytes &- ($1.volatileBytes ?? 0))
                }
                answer.heap = try heap.take(
                    rows: request.rows ?? 40, declared: declared, costsOf: manager.sampledPurgeables)
                manager.record(heap: answer.heap?.census.recorded ?? [])
            case .purge: answer.report = try purge(request)
            case .simulate:
                let (level, _) = try simulate(request)
                (answer.level, answer.seconds) = ("\(level)", level == .normal ? nil : request.seconds)
            case .limit:
                let name = request.name ?? "", bytes = ByteCount(request.bytes ?? 0)
                try setLimit(bytes, name)
                (answer.name, answer.limitBytes) = (name, bytes.bytes)
            case .activate:
                let name = request.name ?? ""
                try activate(name, payload: Array((request.payload ?? "").utf8))
                (answer.name, answer.state) = (name, "\(manager.lifecycle.state)")
            }
        } catch {
            return AdminAnswer(error)
        }
        return answer
    }

    private func sign(_ answer: inout AdminAnswer) {
        (answer.process, answer.program) = (plimsoll_process_id(), program)
    }

    private static func check(_ value: Int?, _ key: String, in range: ClosedRange<Int>) throws(AdminRefusal) {
        guard let value, !range.contains(value) else { return }
        throw AdminRefusal(
            .malformed,
            "\"\(key)\" is \(value); allowed is \(range.lowerBound)"
                + (range.upperBound == .max ? " or more" : " to \(range.upperBound)")
        )
    }

    private func rehearsal(_ request: AdminRequest) throws(AdminRefusal) -> (PressureLevel, Duration) {
        guard let level = request.level.flatMap({ PressureLevel(name: $0) }) else {
            throw AdminRefusal(.malformed, "simulate needs a \"level\": normal, warning or critical")
        }
        guard level != .normal else { return (.normal, .zero) }
        guard let seconds = request.seconds, (0.001...3600).contains(seconds) else {
            throw AdminRefusal(.malformed, "simulate needs \"seconds\" from 0.001 to 3600")
        }
        return (level, .seconds(seconds))
    }

    /// Simulates a pressure level, or ends a simulation.
    func simulate(_ request: AdminRequest) throws(AdminRefusal) -> (level: PressureLevel, duration: Duration) {
        let (level, duration) = try rehearsal(request)
        guard level == .normal || manager.memoryStatus != nil else {
            throw AdminRefusal(
                .failed,
                "cannot simulate a level because the manager does not run; call its run(), or add it to the service group"
            )
        }
        manager.simulate(level, for: duration)
        return (level, duration)
    }

    // MARK: Purging

    private func selection(_ request: AdminRequest) throws(AdminRefusal) -> (chosen: PurgeableSelection, words: String)
    {
        var choices: [(PurgeableSelection, String)] = []
        if let name = request.name { choices.append((.named(name), "with the name \"\(AdminRefusal.quoted(name))\"")) }
        if let group = request.group {
            choices.append((.group(group), "in the group \"\(AdminRefusal.quoted(group))\""))
        }
        if let tag = request.tag { choices.append((.tag(tag), "with the tag \"\(AdminRefusal.quoted(tag))\"")) }
        guard choices.count <= 1 else {
            throw AdminRefusal(.malformed, "purge takes one of \"name\", \"group\" and \"tag\"")
        }
        guard !choices.isEmpty || request.bytes != nil || request.upTo != nil || request.all == true else {
            throw AdminRefusal(
                .malformed,
                #"purge of everything needs "all":true; otherwise "bytes", "upTo", or one of "name", "group" and "tag""#
            )
        }
        guard request.all != true || choices.isEmpty else {
            throw AdminRefusal(.malformed, "cannot purge both all and those \(choices[0].1); leave one of them out")
        }
        let (chosen, words) = choices.first ?? (.all, "of any kind")
        guard let word = request.upTo else { return (chosen, words) }
        guard let cost = RebuildCost.allCases.first(where: { "\($0)" == word }) else {
            throw AdminRefusal(
                .malformed,
                "\"upTo\" is \"\(AdminRefusal.quoted(word))\"; allowed are \(RebuildCost.allCases.map { "\($0)" }.joined(separator: ", "))"
            )
        }
        return (chosen.upTo(cost), words)
    }

    /// Returns the purgeables and the number of bytes of a purge.
    ///
    /// - Parameter holders: the registered purgeables.
    /// - Throws: `AdminRefusal` if the request is malformed, or if no purgeable fits.
    func purgeTarget(_ request: AdminRequest, among holders: [HolderStatus]) throws(AdminRefusal) -> (
        selection: PurgeableSelection, bytes: Int
    ) {
        let (chosen, words) = try selection(request)
        let isThere = holders.contains { holder in
            (request.name.map { holder.name == $0 } ?? true) && (request.tag.map { holder.tags.contains($0) } ?? true)
                && (request.group.map { holder.group == $0 || holder.group.hasPrefix($0 + "/") } ?? true)
        }
        guard isThere else {
            let names = holders.map(\.name).prefix(20).joined(separator: ", ")
            throw AdminRefusal(
                .absent, "no purgeable \(words) is registered; registered: \(names.isEmpty ? "none" : names)")
        }
        return (chosen, request.bytes ?? .max)
    }

    private func purge(_ request: AdminRequest) throws(AdminRefusal) -> ActionStatus {
        let (selection, bytes) = try purgeTarget(request, among: manager.status.holders)
        let report: ActionReport = manager.release(bytes, from: selection)
        return ActionStatus(report)
    }

    private func setLimit(_ limit: ByteCount, _ name: String) throws(AdminRefusal) {
        do {
            try manager.setLimit(limit, ofCacheNamed: name)
        } catch {
            throw AdminRefusal(.absent, error.description)
        }
    }

    // MARK: Activation

    /// Longest wait for the answer to `activate`. The transition to the foreground and the handlers have deadlines of
    /// their own, usually 5 s each.
    static let activationPatience = Duration.seconds(30)

    /// Passes `request` to the life cycle and waits for its answer. Runs on the thread of changes; status requests
    /// are answered meanwhile.
    private func activate(_ request: String, payload: [UInt8]) throws(AdminRefusal) {
        let outcome = Mutex<Result<Void, any Error>?>(nil), parker = Parker()
        manager.lifecycle.activate(request, payload: payload) { result in
            outcome.withLock { $0 = result }
            parker.unpark()
        }
        _ = parker.park(atMost: Self.activationPatience)
        switch outcome.withLock({ $0 }) {
        case .success: break
        case .failure(let error): throw AdminRefusal(.failed, "\(error)")
        case nil:
            throw AdminRefusal(
                .failed,
                "\"\(AdminRefusal.quoted(request))\" was forwarded and not answered within \(Self.activationPatience); an answer may come later"
            )
        }
    }
}

/// Queue of the worker thread that carries out changes, one at a time. A purge takes as long as the purgeables need;
/// status requests are answered meanwhile.
final class AdminChangeWorker: Sendable {
    private struct State {
        var jobs: [(connection: UInt64, request: AdminRequest)] = []
        var isBusy = false
        var isStopped = false
    }

    private let state = Mutex(State())
    private let parker = Parker()

    /// Enqueues a change.
    ///
    /// - Returns: False if `waiting` changes wait already.
    func take(_ connection: UInt64, _ request: AdminRequest, waiting: Int) -> Bool {
        let isTaken = state.withLock { state in
            guard state.jobs.count < waiting + (state.isBusy ? 0 : 1) else { return false }
            state.jobs.append((connection, request))
            return true
        }
        if isTaken { parker.unpark() }
        return isTaken
    }

    func stop() {
        state.withLock { $0.isStopped = true }
        parker.unpark()
    }

    /// Carries out changes until `stop`. Runs on a dedicated thread.
    func run(_ handler: AdminCommandHandler, _ done: (_ connection: UInt64, _ line: [UInt8]) -> Void) {
        let json = AdminJSON()
        while true {
            let (job, isStopped) = state.withLock { state in
                state.isBusy = !state.jobs.isEmpty && !state.isStopped
                return (state.isBusy ? state.jobs.removeFirst() : nil, state.isStopped)
            }
            if isStopped { return }
            guard let job else {
                parker.park()
                continue
            }
            done(job.connection, json.line(handler.answer(job.request)))
        }
    }
}
