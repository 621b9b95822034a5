import Plimsoll
import Synchronization

/// Queue of the worker thread that carries out changes, one at a time. A purge takes as long as the purgeables need;
/// status requests are answered meanwhile.
final class AdminHands: Sendable {
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
    func run(_ desk: AdminDesk, _ done: (_ connection: UInt64, _ line: [UInt8]) -> Void) {
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
            done(job.connection, json.line(desk.answer(job.request)))
        }
    }
}
