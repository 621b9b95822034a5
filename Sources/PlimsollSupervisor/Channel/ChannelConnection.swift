import Glibc
import PlimsollLinux

/// One service's connection, and how much it may still say.
final class ChannelConnection {
    let peer: ChannelServer.Peer
    var stream: LineStream
    var hasGreeted = false
    /// Until when it is not read; `nil` if it is.
    var restsUntil: Duration?

    private var allowance: Double
    private var filledAt: Duration

    init(_ peer: ChannelServer.Peer, _ file: Int32, at now: Duration) {
        self.peer = peer
        stream = LineStream(file)
        allowance = ChannelServer.burst
        filledAt = now
    }

    deinit { close(stream.file) }

    /// Whether it may say another line.
    func spend(at now: Duration) -> Bool {
        // A clock that went back gives nothing and takes nothing.
        let passed = max(.zero, now - filledAt)
        allowance = min(ChannelServer.burst, allowance + min(3600, passed / .seconds(1)) * ChannelServer.rate)
        filledAt = now
        guard allowance >= 1 else { return false }
        allowance -= 1
        return true
    }

    func send(_ message: SupervisorMessage) -> Bool { stream.send { message.encoded($0) } }
}
