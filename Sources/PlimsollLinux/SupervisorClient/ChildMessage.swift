#if canImport(Glibc) && !PLIMSOLL_INERT
package import Plimsoll

/// A message from a service to its supervisor.
package enum ChildMessage: Sendable, Hashable {
    /// The first line of a connection, with the version of the protocol.
    case hello(version: Int)
    /// The service's state.
    case state(State)
    /// Number of background tasks alive, and the longest time they may continue; `nil` if there is no limit.
    case tasks(Int, until: Duration?)
    /// Bytes in the service's caches, and the bytes of them that a release request would free.
    case caches(held: ByteCount, reclaimable: ByteCount)
    /// The worth of memory to the service's caches. Sent only after a share, by which a supervisor shows that it
    /// divides memory.
    case worth(WorthOffer)
    /// True if no data would be lost when the service is ended now.
    case saved(Bool)
    /// True if the service holds locks that others may wait for (C48).
    case locks(Bool)
    /// Requests periodic wake-ups while suspended (C33); answered with `SupervisorMessage.keepAlive`. Zero ends them.
    case keepAlive(every: Duration)
    /// Requests to be frozen: the service's own memory is short, and no more can be released. The supervisor decides.
    case suspend
    /// The service ends the connection and will not reconnect on its own.
    case bye

    package enum State: String, Sendable, Hashable, CaseIterable {
        case foreground
        /// On the way to be frozen, or working in the background.
        case background
        /// In the background, with all work finished: the service may be frozen.
        case suspendedReady = "suspended-ready"
    }

    /// The kind of a message. The last message of a kind replaces earlier ones.
    package enum Kind: Sendable { case hello, state, tasks, caches, worth, saved, locks, keepAlive, suspend, bye }

    package var kind: Kind {
        switch self {
        case .hello: .hello
        case .state: .state
        case .tasks: .tasks
        case .caches: .caches
        case .worth: .worth
        case .saved: .saved
        case .locks: .locks
        case .keepAlive: .keepAlive
        case .suspend: .suspend
        case .bye: .bye
        }
    }

    /// Returns the line with sequence number `sequence`, newline included.
    package func encoded(_ sequence: UInt64) -> [UInt8] { line(sequence).encoded }

    /// Decodes a line without its newline. Returns the sequence number and the message; the message is `nil` for an
    /// unknown verb.
    package static func decode(_ line: some RandomAccessCollection<UInt8>) throws(MessageError) -> (
        sequence: UInt64, message: ChildMessage?
    ) {
        let line = try MessageLine(line)
        return (line.sequence, try ChildMessage(line))
    }

    private func line(_ sequence: UInt64) -> MessageLine {
        switch self {
        case .hello(let version): MessageLine(sequence, "hello", ["v": "\(version)"])
        case .state(let state): MessageLine(sequence, "state", ["is": state.rawValue])
        case .tasks(let count, let until):
            MessageLine(sequence, "tasks", ["n": "\(count)", "until": until.map(\.inLineMilliseconds)])
        case .caches(let held, let reclaimable):
            MessageLine(sequence, "caches", ["bytes": held.inLine, "reclaimable": reclaimable.inLine])
        case .worth(let offer):
            MessageLine(
                sequence, "worth",
                [
                    "bytes": ByteCount(offer.held).inLine, "room": ByteCount(offer.room).inLine,
                    "curve": offer.curve.inLine,
                ])
        case .saved(let isSaved): MessageLine(sequence, "saved", ["is": isSaved.inLine])
        case .locks(let areHeld): MessageLine(sequence, "locks", ["held": areHeld.inLine])
        case .keepAlive(let interval):
            MessageLine(sequence, "keep-alive", ["seconds": "\(max(0, min(86_400, interval.components.seconds)))"])
        case .suspend: MessageLine(sequence, "suspend")
        case .bye: MessageLine(sequence, "bye")
        }
    }

    private init?(_ line: MessageLine) throws(MessageError) {
        switch line.verb {
        case "hello": self = .hello(version: try line.number("v", in: 1...1_000_000))
        case "state": self = .state(try line.word("is"))
        case "tasks":
            self = .tasks(
                try line.number("n", in: 0...1_000_000), until: line.has("until") ? try line.milliseconds("until") : nil
            )
        case "caches":
            self = .caches(
                held: ByteCount(try line.bytes("bytes")), reclaimable: ByteCount(try line.bytes("reclaimable")))
        case "worth":
            guard let curve = MissCurve(inLine: try line.text("curve")) else { throw .invalid("curve") }
            self = .worth(
                WorthOffer(held: try line.bytes("bytes"), room: try line.bytes("room"), curve: curve))
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

extension MissCurve {
    /// The load time with no memory, then each size with its load time: `0:900,1048576:400`. Whole numbers. Only the
    /// first if the others are not known.
    var inLine: String {
        let known = isReliable ? points.map { (bytes: $0.bytes, misses: $0.misses) } : []
        return ([(bytes: 0, misses: requests)] + known).map { point in
            "\(max(0, min(1 << 60, point.bytes))):\(Int(max(0, min(Double(1 << 60), point.misses))))"
        }.joined(separator: ",")
    }

    /// Parses what `inLine` writes: at most `Division.mostPoints` sizes after the first, in rising order. Returns `nil`
    /// for anything else.
    init?(inLine text: String) {
        var points: [Point] = []
        let parts = text.utf8.split(separator: UInt8(ascii: ","), omittingEmptySubsequences: false)
        guard 1...Division.mostPoints + 1 ~= parts.count else { return nil }
        for part in parts {
            let numbers = part.split(separator: UInt8(ascii: ":"), omittingEmptySubsequences: false)
            guard numbers.count == 2, let bytes = MessageLine.number(numbers[0]).flatMap({ Int(exactly: $0) }),
                let misses = MessageLine.number(numbers[1]), bytes <= 1 << 60, misses <= 1 << 60,
                points.last.map({ $0.bytes < bytes }) ?? (bytes == 0)
            else { return nil }
            points.append(Point(bytes: bytes, misses: Double(misses)))
        }
        self.init(requests: points[0].misses, points: Array(points.dropFirst()), isReliable: points.count > 1)
    }
}

extension ByteCount {
    /// The number as the reader accepts it: not negative, and not more than any machine has.
    var inLine: String { "\(Swift.max(0, Swift.min(1 << 60, bytes)))" }
}

extension Duration {
    /// Whole milliseconds, of a day at most.
    var inLineMilliseconds: String { "\(Swift.max(0, Swift.min(86_400_000, inNanoseconds / 1_000_000)))" }
}
#endif
