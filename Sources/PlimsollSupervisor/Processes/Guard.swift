import CPlimsollSupervisor
import Glibc
import Plimsoll
import Synchronization

/// A second process that does nothing but hold the files by which frozen units are set free, and that sets them free when this one ends, however it does (T32).
///
/// It has a session of its own, lets no signal but SIGKILL and SIGSTOP disturb it, and shares its memory with the supervisor as it was at the start: make it
/// first, as long as that is little. If it is killed, `descriptor` becomes ready, and `restart` makes another that knows as much.
package final class Guard: Sendable {
    /// What it was asked to hold, for a guard that comes after it.
    private enum Held: Sendable {
        case group(UnitGroup)
        case process(Child)
    }

    private struct State: ~Copyable {
        var socket: Int32 = -1
        var pidfd: Int32 = -1
        var pid: pid_t = 0
        var nextKey: UInt64 = 1
        /// With the keys that the guard knows it by.
        var held: [ObjectIdentifier: (what: Held, keys: [UInt64])] = [:]
    }

    private let state = Mutex(State())
    /// It answers in microseconds; on a machine that swaps, in this.
    private static let patience: Int32 = 1000

    /// Starts it.
    package init() throws(GroupError) {
        let result = state.withLock { Self.start(&$0) }
        if result < 0 { throw GroupError(.protect, "the units", .kernel(-result)) }
    }

    /// The guard sees the socket close and sets free all that it holds.
    deinit { state.withLock { Self.end(&$0) } }

    /// Ready to be read when it has ended: then `restart`.
    package var descriptor: Int32 { state.withLock { $0.pidfd } }
    package var pid: Int32 { state.withLock { $0.pid } }
    package var isAlive: Bool { state.withLock { Self.isAlive($0) } }

    /// Starts another one if it has ended, and tells that all that was told to the first.
    package func restart() throws(GroupError) {
        let result = state.withLock { state -> Int32 in
            if Self.isAlive(state) { return 0 }
            Self.end(&state)
            let started = Self.start(&state)
            guard started >= 0 else { return started }
            for (id, entry) in state.held {
                state.held[id]?.keys = []
                let result = Self.tell(entry.what, id, &state)
                if result < 0 { return result }
            }
            return 0
        }
        if result < 0 { throw GroupError(.protect, "the units", .kernel(-result)) }
    }

    /// From now on it thaws `group`, or continues its processes, when this process ends.
    ///
    /// Once is enough for a group with a directory, as soon as it is made. One without, whose processes are stopped one by one, is told anew each time when
    /// it is about to be stopped and when it has been.
    package func watch(_ group: UnitGroup) throws(GroupError) { try hold(.group(group), ObjectIdentifier(group), group.path) }

    /// From now on it continues this process, which is about to be stopped.
    package func watch(_ child: Child) throws(GroupError) { try hold(.process(child), ObjectIdentifier(child), "process \(child.pid)") }

    /// Lets go of a group that is removed or is not frozen any more.
    package func forget(_ group: UnitGroup) { state.withLock { Self.forget(ObjectIdentifier(group), &$0) } }
    package func forget(_ child: Child) { state.withLock { Self.forget(ObjectIdentifier(child), &$0) } }

    private func hold(_ what: Held, _ id: ObjectIdentifier, _ name: String) throws(GroupError) {
        let result = state.withLock { state -> Int32 in
            Self.forget(id, &state)
            // Remembered even if it could not be told: the next guard is.
            state.held[id] = (what, [])
            return Self.tell(what, id, &state)
        }
        if result < 0 { throw GroupError(.protect, name, .kernel(-result)) }
    }

    // MARK: Talking to it, under the lock

    private static func start(_ state: inout State) -> Int32 { plimsoll_guard_start(&state.socket, &state.pidfd, &state.pid) }

    private static func isAlive(_ state: borrowing State) -> Bool { state.pidfd >= 0 && plimsoll_ready(state.pidfd, POLLIN, 0) == 0 }

    private static func end(_ state: inout State) {
        if state.socket >= 0 { close(state.socket) }
        if state.pidfd >= 0 {
            var status: Int32 = 0
            _ = plimsoll_ready(state.pidfd, POLLIN, patience)
            if plimsoll_pidfd_wait(state.pidfd, 0, &status) == 0 { reapLater(state.pidfd) } else { close(state.pidfd) }
        }
        (state.socket, state.pidfd, state.pid) = (-1, -1, 0)
    }

    /// A machine that is busy may take longer to end it: nobody is kept waiting, and no zombie is left.
    private static func reapLater(_ file: Int32) {
        let isStarted = Thread.start("plimsoll-reap") {
            var status: Int32 = 0
            _ = plimsoll_ready(file, POLLIN, -1)
            _ = plimsoll_pidfd_wait(file, 0, &status)
            close(file)
        }
        if !isStarted { close(file) }
    }

    private static func forget(_ id: ObjectIdentifier, _ state: inout State) {
        guard let entry = state.held.removeValue(forKey: id) else { return }
        for key in entry.keys { _ = tell(PLIMSOLL_GUARD_FORGET, -1, key, state.socket) }
    }

    private static func tell(_ what: Held, _ id: ObjectIdentifier, _ state: inout State) -> Int32 {
        switch what {
        case .process(let child): return add(PLIMSOLL_GUARD_STOPPED_PROCESS, child.descriptor, id, &state)
        case .group(let group):
            switch group.freezer {
            case .unified(let file): return add(PLIMSOLL_GUARD_UNIFIED, file, id, &state)
            case .version1(let file): return add(PLIMSOLL_GUARD_FREEZER, file, id, &state)
            case .signals:
                if let directory = group.directories.first { return add(PLIMSOLL_GUARD_STOPPED_GROUP, directory.descriptor, id, &state) }
                for pid in group.processes {
                    let file = plimsoll_pidfd_open(pid)
                    // It has ended meanwhile.
                    guard file >= 0 else { continue }
                    defer { close(file) }
                    let result = add(PLIMSOLL_GUARD_STOPPED_PROCESS, file, id, &state)
                    if result < 0 { return result }
                }
                return 0
            }
        }
    }

    private static func add(_ kind: plimsoll_guard_kind, _ file: Int32, _ id: ObjectIdentifier, _ state: inout State) -> Int32 {
        let key = state.nextKey
        state.nextKey += 1
        let result = tell(kind, file, key, state.socket)
        if result >= 0 { state.held[id]?.keys.append(key) }
        return result
    }

    private static func tell(_ kind: plimsoll_guard_kind, _ file: Int32, _ key: UInt64, _ socket: Int32) -> Int32 {
        var record = plimsoll_guard_record(kind: kind.rawValue, key: key)
        return plimsoll_guard_tell(socket, &record, file, patience)
    }
}
