#if canImport(Glibc) && !PLIMSOLL_INERT
package import Plimsoll

/// A message from a supervisor to a service.
package enum SupervisorMessage: Sendable, Hashable {
    /// The current memory pressure level.
    case level(PressureLevel)
    /// Release this many bytes.
    case release(ByteCount)
    /// The service's share of the memory for caches of all services. Asks the service to report what memory is worth to
    /// its caches.
    case share(ProcessShare)
    /// Go to the background by the deadline; the service is frozen after that (C4, C43).
    case background(deadline: Duration)
    /// Come back from the background.
    case resume
    /// Save unsaved data, and report `saved`.
    case checkpoint
    /// The process will be ended, at the latest after the grace time.
    case ending(grace: Duration)
    /// Answers the keep-alive request in the line of that number: granted or not (C33).
    case keepAlive(answerTo: UInt64, accepted: Bool)
    /// The last line before the supervisor closes the connection, with the reason.
    case refused(Refusal)

    /// The reason for closing a connection.
    package enum Refusal: String, Sendable, Hashable, CaseIterable {
        /// The first line was no hello.
        case noHello = "no-hello"
        /// The hello had another version.
        case version
        /// A line could not be parsed.
        case malformed
        /// Sequence numbers did not grow by one.
        case sequence
        /// The maximum number of connections is reached, of this process or of all.
        case tooMany = "too-many"
        /// The process does not belong to the supervisor.
        case unknownProcess = "unknown-process"
    }

    /// Returns the line with sequence number `sequence`, newline included.
    package func encoded(_ sequence: UInt64) -> [UInt8] { line(sequence).encoded }

    /// Decodes a line without its newline. Returns the sequence number and the message; the message is `nil` for an
    /// unknown verb.
    package static func decode(_ line: some RandomAccessCollection<UInt8>) throws(MessageError) -> (
        sequence: UInt64, message: SupervisorMessage?
    ) {
        let line = try MessageLine(line)
        return (line.sequence, try SupervisorMessage(line))
    }

    private func line(_ sequence: UInt64) -> MessageLine {
        switch self {
        case .level(let level): MessageLine(sequence, "level", ["is": "\(level)"])
        case .release(let bytes): MessageLine(sequence, "release", ["bytes": bytes.inLine])
        case .share(let share):
            MessageLine(
                sequence, "share",
                ["bytes": share.bytes.map { ByteCount($0).inLine }, "of": ByteCount(share.total).inLine])
        case .background(let deadline): MessageLine(sequence, "background", ["deadline": deadline.inLineMilliseconds])
        case .resume: MessageLine(sequence, "resume")
        case .checkpoint: MessageLine(sequence, "checkpoint")
        case .ending(let grace): MessageLine(sequence, "ending", ["grace": grace.inLineMilliseconds])
        case .keepAlive(let number, let accepted):
            MessageLine(sequence, "keep-alive", ["to": "\(number)", "accepted": accepted.inLine])
        case .refused(let reason): MessageLine(sequence, "refused", ["because": reason.rawValue])
        }
    }

    private init?(_ line: MessageLine) throws(MessageError) {
        switch line.verb {
        case "level":
            let name = try line.text("is")
            guard let level = PressureLevel(name: name) else { throw .invalid("is") }
            self = .level(level)
        case "release": self = .release(ByteCount(try line.bytes("bytes")))
        case "share":
            self = .share(
                ProcessShare(bytes: line.has("bytes") ? try line.bytes("bytes") : nil, total: try line.bytes("of")))
        case "background": self = .background(deadline: try line.milliseconds("deadline"))
        case "resume": self = .resume
        case "checkpoint": self = .checkpoint
        case "ending": self = .ending(grace: try line.milliseconds("grace"))
        case "keep-alive":
            self = .keepAlive(
                answerTo: UInt64(try line.number("to", in: 1...Int.max)), accepted: try line.flag("accepted"))
        case "refused": self = .refused(try line.word("because"))
        default: return nil
        }
    }
}
#endif
