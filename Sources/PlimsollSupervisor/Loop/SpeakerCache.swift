import CPlimsollSupervisor
import Glibc

/// Which unit each speaking process belongs to, and which users the process has, so that a flood of words reads /proc once a second and not for each word.
///
/// A number is the same process as long as a pidfd of that process says that it lives, so a later process of that number is looked for anew (K38).
final class SpeakerCache {
    struct Speaker {
        /// The number of its unit's run; `nil` for a stranger.
        let run: UInt64?
        let users: Set<UInt32>
    }

    private final class Entry {
        let descriptor: Int32
        let speaker: Speaker
        let at: Duration

        init(_ descriptor: Int32, _ speaker: Speaker, _ at: Duration) {
            (self.descriptor, self.speaker, self.at) = (descriptor, speaker, at)
        }
        deinit { close(descriptor) }

        var isAlive: Bool { plimsoll_ready(descriptor, POLLIN, 0) == 0 }
    }

    /// Processes that are remembered; each costs a descriptor.
    static let most = 128
    /// A process may join a unit's group, or change its user.
    static let lifetime = Duration.seconds(1)
    /// How often a process was looked up.
    private(set) var lookups = 0
    private var entries: [Int32: Entry] = [:]

    /// Returns what is known of `process`, or what `find` finds.
    ///
    /// - Parameters:
    ///   - user: as which the process has spoken. What is remembered holds for a unit's process only if that user is among the remembered.
    ///   - isKnown: whether the process is known to belong to a unit, so that no stranger is remembered in its place.
    func speaker(_ process: Int32, as user: UInt32, isKnown: Bool, at now: Duration, find: () -> Speaker) -> Speaker {
        if let entry = entries[process] {
            let isFresh = now >= entry.at && now - entry.at < Self.lifetime
            let holds = entry.speaker.run == nil ? !isKnown : entry.speaker.users.contains(user)
            if isFresh, holds, entry.isAlive { return entry.speaker }
            entries[process] = nil
        }
        lookups += 1
        // Opened before the look: what is found then is of this process, or the descriptor says that it has ended.
        let descriptor = plimsoll_pidfd_open(process)
        let speaker = find()
        if descriptor >= 0 {
            if entries.count >= Self.most { entries.removeAll(keepingCapacity: true) }
            entries[process] = Entry(descriptor, speaker, now)
        }
        return speaker
    }
}
