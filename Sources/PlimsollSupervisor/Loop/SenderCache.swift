import CPlimsollSupervisor
import Glibc
import PlimsollLinux

/// A cache of the unit and the users of each sending process. A flood of messages then reads /proc once a second and
/// not for each message.
///
/// An entry is valid as long as a pidfd shows that the process lives. A later process with the same number is looked up
/// again (K38).
final class SenderCache {
    struct Sender {
        /// The ID of the unit's run; `nil` for a process of no unit.
        let run: UInt64?
        let users: Set<UInt32>
    }

    private final class Entry {
        let descriptor: Int32
        let sender: Sender
        let at: Duration

        init(_ descriptor: Int32, _ sender: Sender, _ at: Duration) {
            (self.descriptor, self.sender, self.at) = (descriptor, sender, at)
        }
        deinit { close(descriptor) }

        var isAlive: Bool { plimsoll_ready(descriptor, POLLIN, 0) == 0 }
    }

    /// The maximum number of cached processes; each costs a descriptor.
    static let most = 128
    /// Lifetime of an entry, bounded since a process may join a unit's group or change its user.
    static let lifetime = Duration.seconds(1)
    /// Number of lookups so far.
    private(set) var lookups = 0
    /// Number of cached processes.
    var count: Int { entries.count }
    private var entries: [Int32: Entry] = [:]

    /// Returns the cached entry of `process`, or the result of `find`.
    ///
    /// - Parameters:
    ///   - user: the user as which the process has sent. An entry for a unit's process applies only if `user` is among
    ///     the cached users.
    ///   - isKnown: true if the process is known to belong to a unit, so an entry for an unknown process does not
    ///     apply.
    func sender(_ process: Int32, as user: UInt32, isKnown: Bool, at now: Duration, find: () -> Sender) -> Sender {
        if let entry = entries[process] {
            let isFresh = now >= entry.at && now - entry.at < Self.lifetime
            let holds = entry.sender.run == nil ? !isKnown : entry.sender.users.contains(user)
            if isFresh, holds, entry.isAlive { return entry.sender }
            entries[process] = nil
        }
        lookups += 1
        // Opened before the lookup: the result then belongs to this process, or the descriptor shows that the process
        // has ended.
        let descriptor = plimsoll_pidfd_open(process)
        let sender = find()
        if descriptor >= 0 {
            // Those of ended processes would keep their descriptors.
            entries = entries.filter { now >= $0.value.at && now - $0.value.at < Self.lifetime }
            if entries.count >= Self.most { entries.removeAll(keepingCapacity: true) }
            entries[process] = Entry(descriptor, sender, now)
        }
        return sender
    }
}

/// The sockets of a unit, and pending messages of links that don't yet represent the unit.
struct UnitMessages {
    /// The socket `UNIT.notify`; `nil` for units that the supervisor does not start.
    var notices: NotifySocket?
    /// The rate limit of sd_notify(3) messages, about a hundred times the rate of a talkative service.
    var allowance = Allowance(rate: 1000, burst: 512, at: .zero)
    /// The last connection of processes that have ended.
    var peersBefore: UInt64 = 0

    /// The last message of each kind of the links that wait for the current one to close, by connection.
    private(set) var waiting: [UInt64: [ChildMessage.Kind: (message: ChildMessage, number: UInt64, at: Duration)]] =
        [:]

    mutating func add(_ peer: UInt64) { waiting[peer] = [:] }
    mutating func remove(_ peer: UInt64) { waiting[peer] = nil }

    /// Stores a message of a waiting link. Returns false if the link doesn't wait.
    mutating func note(_ message: ChildMessage, _ number: UInt64, of peer: UInt64, at now: Duration) -> Bool {
        guard waiting[peer] != nil else { return false }
        waiting[peer]?[message.kind] = (message, number, now)
        return true
    }

    /// Extends the times in stored messages by a pause in which the unit could not work.
    mutating func excuse(_ pause: Duration) {
        guard pause > .zero, !waiting.isEmpty else { return }
        for (peer, messages) in waiting {
            for (kind, noted) in messages { waiting[peer]?[kind] = (noted.message, noted.number, noted.at + pause) }
        }
    }

    /// Removes and returns the link that has waited longest, with its messages and their times, oldest first.
    mutating func takeNext() -> (peer: UInt64, messages: [(message: ChildMessage, number: UInt64, at: Duration)])? {
        guard let peer = waiting.keys.min(), let messages = waiting.removeValue(forKey: peer) else { return nil }
        return (peer, messages.values.sorted { $0.number < $1.number })
    }

    /// Discards the links of ended processes; `last` is the newest connection that one of them can have.
    mutating func forget(upTo last: UInt64) {
        waiting = [:]
        peersBefore = last
    }
}
