import PlimsollLinux

/// What a unit speaks by, and what its links have said that do not speak for it yet.
struct UnitSpeech {
    /// `UNIT.notify`; `nil` for units that the supervisor does not start.
    var notices: NotifySocket?
    /// Words by sd_notify(3): some hundred times what a service says that says much.
    var allowance = Allowance(rate: 1000, burst: 512, at: .zero)
    /// Connections up to this one belong to processes that have ended.
    var peersBefore: UInt64 = 0

    /// The last message of each kind of the links that wait for the speaking one to close, by connection.
    private(set) var waiting: [UInt64: [Int: (message: ChildMessage, number: UInt64)]] = [:]

    mutating func add(_ peer: UInt64) { waiting[peer] = [:] }
    mutating func remove(_ peer: UInt64) { waiting[peer] = nil }

    /// Remembers what a waiting link says; false if that link does not wait.
    mutating func note(_ message: ChildMessage, _ number: UInt64, of peer: UInt64) -> Bool {
        guard waiting[peer] != nil else { return false }
        waiting[peer]?[Self.kind(message)] = (message, number)
        return true
    }

    /// The link that has waited longest, with what it has said, oldest first; waits no more.
    mutating func takeNext() -> (peer: UInt64, words: [(message: ChildMessage, number: UInt64)])? {
        guard let peer = waiting.keys.min(), let words = waiting.removeValue(forKey: peer) else { return nil }
        return (peer, words.values.sorted { $0.number < $1.number })
    }

    /// Its processes have ended; `last` is the newest connection that one of them can have.
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
