public import Plimsoll

/// What a supervisor tells a service.
public enum SupervisorMessage: Sendable, Hashable {
    /// How short memory is.
    case level(PressureLevel)
    /// Give back so much.
    case release(ByteCount)
    /// Go to the background, by that time; it will stand still after (C4, C43).
    case background(deadline: Duration)
    /// Come back from the background.
    case resume
    /// Save what would be lost, and say so.
    case checkpoint
    /// It will be ended, after that time at the latest.
    case ending(grace: Duration)
    /// Whether the keep-alive asked for in the line of that number is granted (C33).
    case keepAlive(answerTo: UInt64, accepted: Bool)
    /// The last line before the connection is closed: why.
    case refused(Refusal)

    /// Why a connection is closed.
    public enum Refusal: String, Sendable, Hashable, CaseIterable {
        /// The first line was no hello.
        case noHello = "no-hello"
        /// The hello was of another version.
        case version
        /// A line that can't be read.
        case malformed
        /// Line numbers did not grow by one.
        case sequence
        /// As many connections as may be, of this process or of all.
        case tooMany = "too-many"
        /// The process is none of the supervisor's.
        case unknownProcess = "unknown-process"
    }

    /// The line of that number, newline included.
    public func encoded(_ sequence: UInt64) -> [UInt8] { line(sequence).encoded }

    /// The message in a line without its newline, and its number; no message for a verb that is not known.
    public static func decode(_ line: some RandomAccessCollection<UInt8>) throws(MessageError) -> (sequence: UInt64, message: SupervisorMessage?) {
        let line = try MessageLine(line)
        return (line.sequence, try SupervisorMessage(line))
    }

    private func line(_ sequence: UInt64) -> MessageLine {
        switch self {
        case .level(let level): MessageLine(sequence, "level", ["is": "\(level)"])
        case .release(let bytes): MessageLine(sequence, "release", ["bytes": bytes.inLine])
        case .background(let deadline): MessageLine(sequence, "background", ["deadline": deadline.inLineMilliseconds])
        case .resume: MessageLine(sequence, "resume")
        case .checkpoint: MessageLine(sequence, "checkpoint")
        case .ending(let grace): MessageLine(sequence, "ending", ["grace": grace.inLineMilliseconds])
        case .keepAlive(let number, let accepted): MessageLine(sequence, "keep-alive", ["to": "\(number)", "accepted": accepted.inLine])
        case .refused(let reason): MessageLine(sequence, "refused", ["because": reason.rawValue])
        }
    }

    private init?(_ line: MessageLine) throws(MessageError) {
        switch line.verb {
        case "level":
            let name = try line.text("is")
            guard let level = PressureLevel.allCases.first(where: { "\($0)" == name }) else { throw .invalid("is") }
            self = .level(level)
        case "release": self = .release(ByteCount(try line.bytes("bytes")))
        case "background": self = .background(deadline: try line.milliseconds("deadline"))
        case "resume": self = .resume
        case "checkpoint": self = .checkpoint
        case "ending": self = .ending(grace: try line.milliseconds("grace"))
        case "keep-alive": self = .keepAlive(answerTo: UInt64(try line.number("to", in: 1...Int.max)), accepted: try line.flag("accepted"))
        case "refused": self = .refused(try line.word("because"))
        default: return nil
        }
    }
}
