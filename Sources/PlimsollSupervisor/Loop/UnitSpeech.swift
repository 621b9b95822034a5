import PlimsollLinux

/// The sockets of a unit, and pending messages of links that don't yet represent the unit.
struct UnitSpeech {
    /// The socket `UNIT.notify`; `nil` for units that the supervisor does not start.
    var notices: NotifySocket?
    /// The rate limit of sd_notify(3) messages, about a hundred times the rate of a talkative service.
    var allowance = Allowance(rate: 1000, burst: 512, at: .zero)
    /// The last connection of processes that have ended.
    var peersBefore: UInt64 = 0

    /// The last message of each kind of the links that wait for the current one to close, by connection.
    private(set) var waiting: [UInt64: [Int: (message: ChildMessage, number: UInt64)]] = [:]

    mutating func add(_ peer: UInt64) { waiting[peer] = [:] }
    mutating func remove(_ peer: UInt64) { waiting[peer] = nil }

    /// Stores a message of a waiting link. Returns false if the link doesn't wait.
    mutating func note(_ message: ChildMessage, _ number: UInt64, of peer: UInt64) -> Bool {
        guard waiting[peer] != nil else { return false }
        waiting[peer]?[Self.kind(message)] = (message, number)
        return true
    }

    /// Removes and returns the link that has waited longest, with its messages, oldest first.
    mutating func takeNext() -> (peer: UInt64, words: [(message: ChildMessage, number: UInt64)])? {
        guard let peer = waiting.keys.min(), let words = waiting.removeValue(forKey: peer) else { return nil }
        return (peer, words.values.sorted { $0.number < $1.number })
    }

    /// Discards the links of ended processes; `last` is the newest connection that one of them can have.
    mutating func forget(upTo last: UInt64) {
        waiting = [:]
        peersBefore = last
    }

    private static func kind(_ message: ChildMessage) -> Int {
        switch message {
        case .hello: 0
        case .state: 1
        case .tasks: 2
        case .saved: 3
        case .locks: 4
        case .caches: 5
        case .keepAlive: 6
        case .bye: 7
        case .suspend: 8
        }
    }
}
