import CPlimsollSupervisor
import Glibc
import Plimsoll
import Synchronization

/// A second process that only holds the files for thawing units. When the supervisor ends in any way, the guard thaws
/// all held units (T32).
///
/// The guard has a session of its own, and only SIGKILL and SIGSTOP can disturb it. The guard shares the supervisor's
/// memory as of the start (copy-on-write): start the guard first, while that memory is small. If the guard is killed,
/// `descriptor` becomes ready, and `restart` starts another with the same entries.
package final class Guard: Sendable {
    /// A held object, recorded for a guard that is started later.
    private enum Held: Sendable {
        case group(UnitGroup)
        case process(Child)
        case limits([LiftedLimit])
    }

    /// The owner of a held object, and the part of the owner that is held.
    private struct ID: Hashable {
        var object: ObjectIdentifier
        var part: Int
    }

    /// The reason for limits of a group that must not outlast this process.
    package enum Burden: Int, Sendable, CaseIterable {
        case throttle = 1, containment, shares, reclaiming
    }

    private struct State: ~Copyable {
        var socket: Int32 = -1
        var pidfd: Int32 = -1
        var pid: pid_t = 0
        var nextKey: UInt64 = 1
        /// The held objects, with the keys under which the guard holds them.
        var held: [ID: (what: Held, keys: [UInt64])] = [:]
    }

    private let state = Mutex(State())
    private let kept: [Int32]
    private let patience: Int32

    /// Starts the guard.
    ///
    /// - Parameters:
    ///   - kept: descriptors that the guard keeps copies of until it has released all that it holds; at most
    ///     `PLIMSOLL_GUARD_MOST_KEPT`.
    ///   - patience: greatest time until an answer. Answers take microseconds; on a machine that swaps, up to this
    ///     time. A pause of the whole machine counts as a tenth of a second.
    package init(keeping kept: [Int32] = [], patience: Duration = .seconds(1)) throws(GroupError) {
        self.kept = kept
        self.patience = Int32(clamping: Int64(patience / .milliseconds(1)))
        let result = state.withLock { Self.start(&$0, kept) }
        if result < 0 { throw GroupError(.protect, "the units", .kernel(-result)) }
    }

    /// Closing the socket makes the guard release all entries.
    deinit { state.withLock { Self.end($0.socket, $0.pidfd, patience) } }

    /// Readable when the guard has ended; call `restart` then.
    package var descriptor: Int32 { state.withLock { $0.pidfd } }
    package var pid: Int32 { state.withLock { $0.pid } }
    package var isAlive: Bool { state.withLock { Self.isAlive($0) } }

    /// Starts another guard if the present one has ended, and sends all entries to the new one.
    package func restart() throws(GroupError) {
        let result = state.withLock { Self.isAlive($0) ? 0 : replace(&$0) }
        if result < 0 { throw GroupError(.protect, "the units", .kernel(-result)) }
    }

    /// Makes the guard thaw `group`, or continue its processes, when this process ends.
    ///
    /// For a group with a directory, call this once, when the group is made. Without a directory, processes are
    /// stopped one by one: call this each time before they are stopped and after.
    package func watch(_ group: UnitGroup) throws(GroupError) {
        try hold(.group(group), ID(object: ObjectIdentifier(group), part: 0), group.path)
    }

    /// Returns true if the guard holds `group`. False after the guard has refused the group.
    package func isHolding(_ group: UnitGroup) -> Bool {
        state.withLock { $0.held[ID(object: ObjectIdentifier(group), part: 0)]?.keys.isEmpty == false }
    }

    /// Makes the guard continue this process, which is about to be stopped.
    package func watch(_ child: Child) throws(GroupError) {
        try hold(.process(child), ID(object: ObjectIdentifier(child), part: 0), "process \(child.pid)")
    }

    /// Makes the guard lift these limits of `group` when this process ends. Call this before setting the limits.
    package func watch(_ limits: [LiftedLimit], _ burden: Burden, of group: UnitGroup) throws(GroupError) {
        try hold(.limits(limits), ID(object: ObjectIdentifier(group), part: burden.rawValue), group.path)
    }

    /// Releases a group that is removed or not frozen any more, with all limits.
    package func forget(_ group: UnitGroup) {
        state.withLock { state in
            for part in [0] + Burden.allCases.map(\.rawValue) {
                forget(ID(object: ObjectIdentifier(group), part: part), &state)
            }
        }
    }
    package func forget(_ child: Child) { state.withLock { forget(ID(object: ObjectIdentifier(child), part: 0), &$0) } }
    /// Releases limits that are lifted already.
    package func forget(_ burden: Burden, of group: UnitGroup) {
        state.withLock { forget(ID(object: ObjectIdentifier(group), part: burden.rawValue), &$0) }
    }

    private func hold(_ what: Held, _ id: ID, _ name: String) throws(GroupError) {
        let result = state.withLock { state -> Int32 in
            let former = state.held[id]?.keys ?? []
            // Recorded even if the guard could not be notified: the next guard will receive the entry.
            state.held[id] = (what, [])
            var result = Self.send(what, id, &state, patience)
            // The former entries stay until the guard has the new ones: their processes may be stopped already.
            if result >= 0 {
                result = Self.remove(former, state.socket, patience)
            } else {
                state.held[id]?.keys += former
            }
            // After a timeout, the guard's state is unknown. Replace the guard, and send all entries to the new one,
            // this included.
            return result == -ETIMEDOUT ? replace(&state) : result
        }
        if result < 0 { throw GroupError(.protect, name, .kernel(-result)) }
    }

    // MARK: Messages to the guard, under the lock

    private static func start(_ state: inout State, _ kept: [Int32]) -> Int32 {
        kept.withUnsafeBufferPointer {
            plimsoll_guard_start($0.baseAddress, Int32($0.count), &state.socket, &state.pidfd, &state.pid)
        }
    }

    private static func isAlive(_ state: borrowing State) -> Bool {
        state.pidfd >= 0 && plimsoll_ready(state.pidfd, POLLIN, 0) == 0
    }

    /// Starts another guard, which receives all entries before the former one ends. The former guard is killed, so
    /// that it can't release the entries of the new one.
    private func replace(_ state: inout State) -> Int32 {
        let (socket, pidfd) = (state.socket, state.pidfd)
        (state.socket, state.pidfd, state.pid) = (-1, -1, 0)
        let started = Self.start(&state, kept)
        var result = started
        if started >= 0 {
            for (id, entry) in state.held where result >= 0 {
                state.held[id]?.keys = []
                result = Self.send(entry.what, id, &state, patience)
            }
        }
        if pidfd >= 0 { _ = plimsoll_pidfd_signal(pidfd, SIGKILL) }
        Self.end(socket, pidfd, patience)
        // A guard without all entries is useless: kill it, and let `restart` try again.
        if result < 0, state.pidfd >= 0 {
            _ = plimsoll_pidfd_signal(state.pidfd, SIGKILL)
            _ = plimsoll_ready(state.pidfd, POLLIN, patience)
        }
        return result
    }

    private static func end(_ socket: Int32, _ pidfd: Int32, _ patience: Int32) {
        if socket >= 0 { close(socket) }
        guard pidfd >= 0 else { return }
        var status: Int32 = 0
        _ = plimsoll_ready(pidfd, POLLIN, patience)
        if plimsoll_pidfd_wait(pidfd, 0, &status) == 0 { Child.reapLater(pidfd) } else { close(pidfd) }
    }

    private func forget(_ id: ID, _ state: inout State) {
        guard let entry = state.held.removeValue(forKey: id) else { return }
        // The guard may still hold an entry that must not be released any more.
        if Self.remove(entry.keys, state.socket, patience) < 0 { _ = replace(&state) }
    }

    /// Removes entries from the guard. Returns -ETIMEDOUT if the guard may still hold some of them, else 0.
    private static func remove(_ keys: [UInt64], _ socket: Int32, _ patience: Int32) -> Int32 {
        for key in keys where send(PLIMSOLL_GUARD_FORGET, -1, key, "", socket, patience) == -ETIMEDOUT {
            return -ETIMEDOUT
        }
        return 0
    }

    private static func send(_ what: Held, _ id: ID, _ state: inout State, _ patience: Int32) -> Int32 {
        switch what {
        case .process(let child): return add(PLIMSOLL_GUARD_STOPPED_PROCESS, child.descriptor, id, &state, patience)
        case .limits(let limits):
            for limit in limits {
                let file = limit.directory.open(limit.file, O_WRONLY)
                guard file >= 0 else {
                    let number = errno
                    if GroupDirectory.mayBeThere(number) { return -number }
                    // The group is gone, or has no such limit.
                    continue
                }
                defer { close(file) }
                let result = add(PLIMSOLL_GUARD_TEXT, file, id, &state, patience, limit.text)
                if result < 0 { return result }
            }
            return 0
        case .group(let group):
            switch group.freezer {
            case .unified(let file): return add(PLIMSOLL_GUARD_UNIFIED, file, id, &state, patience)
            case .version1(let file): return add(PLIMSOLL_GUARD_FREEZER, file, id, &state, patience)
            case .signals:
                if let directory = group.directories.first {
                    return add(PLIMSOLL_GUARD_STOPPED_GROUP, directory.descriptor, id, &state, patience)
                }
                for pid in group.processes {
                    let file = plimsoll_pidfd_open(pid)
                    // The process has ended in the meantime.
                    if file == -ESRCH { continue }
                    guard file >= 0 else { return file }
                    defer { close(file) }
                    let result = add(PLIMSOLL_GUARD_STOPPED_PROCESS, file, id, &state, patience)
                    if result < 0 { return result }
                }
                return 0
            }
        }
    }

    private static func add(
        _ kind: plimsoll_guard_kind, _ file: Int32, _ id: ID, _ state: inout State, _ patience: Int32,
        _ text: String = ""
    ) -> Int32 {
        let key = state.nextKey
        state.nextKey += 1
        let result = send(kind, file, key, text, state.socket, patience)
        if result >= 0 { state.held[id]?.keys.append(key) }
        return result
    }

    private static func send(
        _ kind: plimsoll_guard_kind, _ file: Int32, _ key: UInt64, _ text: String, _ socket: Int32, _ patience: Int32
    ) -> Int32 {
        guard text.utf8.count <= Int(PLIMSOLL_GUARD_TEXT_SIZE) else { return -EINVAL }
        var record = plimsoll_guard_record()
        (record.kind, record.length, record.key) = (kind.rawValue, UInt32(text.utf8.count), key)
        withUnsafeMutableBytes(of: &record.text) { $0.copyBytes(from: text.utf8) }
        return plimsoll_guard_send(socket, &record, file, patience)
    }
}
