public import Plimsoll

/// What a service tells its supervisor.
public enum ChildMessage: Sendable, Hashable {
    /// The first line of a connection, with the version of the protocol.
    case hello(version: Int)
    /// What it is doing.
    case state(State)
    /// Background tasks alive, and for how long at most it may go on with them; `nil` where nothing limits it.
    case tasks(Int, until: Duration?)
    /// What its caches hold, and how much of that it would let go of if asked.
    case caches(held: ByteCount, reclaimable: ByteCount)
    /// Whether nothing would be lost if it were ended now.
    case saved(Bool)
    /// Whether it holds what others may wait for (C48).
    case locks(Bool)
    /// It asks to be woken that often while suspended (C33); answered with `SupervisorMessage.keepAlive`. Zero ends it.
    case keepAlive(every: Duration)
    /// It asks to be made to stand still: its own memory is short, and it can't give more. The supervisor decides.
    case suspend
    /// It goes, and will not come back on its own.
    case bye

    public enum State: String, Sendable, Hashable, CaseIterable {
        case foreground
        /// On its way to stand still, or working in the background.
        case background
        /// In the background, with everything put in order: it may be made to stand still.
        case suspendedReady = "suspended-ready"
    }

    /// The line of that number, newline included.
    public func encoded(_ sequence: UInt64) -> [UInt8] { line(sequence).encoded }

    /// The message in a line without its newline, and its number; no message for a verb that is not known.
    public static func decode(_ line: some RandomAccessCollection<UInt8>) throws(MessageError) -> (sequence: UInt64, message: ChildMessage?) {
        let line = try MessageLine(line)
        return (line.sequence, try ChildMessage(line))
    }

    private func line(_ sequence: UInt64) -> MessageLine {
        switch self {
        case .hello(let version): MessageLine(sequence, "hello", ["v": "\(version)"])
        case .state(let state): MessageLine(sequence, "state", ["is": state.rawValue])
        case .tasks(let count, let until): MessageLine(sequence, "tasks", ["n": "\(count)", "until": until.map(\.inLineMilliseconds)])
        case .caches(let held, let reclaimable):
            MessageLine(sequence, "caches", ["bytes": held.inLine, "reclaimable": reclaimable.inLine])
        case .saved(let isSaved): MessageLine(sequence, "saved", ["is": isSaved.inLine])
        case .locks(let areHeld): MessageLine(sequence, "locks", ["held": areHeld.inLine])
        case .keepAlive(let interval): MessageLine(sequence, "keep-alive", ["seconds": "\(max(0, min(86_400, interval.components.seconds)))"])
        case .suspend: MessageLine(sequence, "suspend")
        case .bye: MessageLine(sequence, "bye")
        }
    }

    private init?(_ line: MessageLine) throws(MessageError) {
        switch line.verb {
        case "hello": self = .hello(version: try line.number("v", in: 1...1_000_000))
        case "state": self = .state(try line.word("is"))
        case "tasks": self = .tasks(try line.number("n", in: 0...1_000_000), until: line.has("until") ? try line.milliseconds("until") : nil)
        case "caches": self = .caches(held: ByteCount(try line.bytes("bytes")), reclaimable: ByteCount(try line.bytes("reclaimable")))
        case "saved": self = .saved(try line.flag("is"))
        case "locks": self = .locks(try line.flag("held"))
        case "keep-alive": self = .keepAlive(every: .seconds(try line.number("seconds", in: 0...86_400)))
        case "suspend": self = .suspend
        case "bye": self = .bye
        default: return nil
        }
    }
}

extension Bool {
    var inLine: String { self ? "yes" : "no" }
}

extension ByteCount {
    /// As the reader takes it: nothing negative, nothing beyond what any machine has.
    var inLine: String { "\(Swift.max(0, Swift.min(1 << 60, bytes)))" }
}

extension Duration {
    /// Whole milliseconds, of a day at most.
    var inLineMilliseconds: String { "\(Swift.max(0, Swift.min(86_400_000, inNanoseconds / 1_000_000)))" }
}
