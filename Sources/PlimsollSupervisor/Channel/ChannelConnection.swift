import Glibc
import PlimsollLinux

/// One service's connection, and how much it may still say.
final class ChannelConnection {
    let peer: ChannelServer.Peer
    var stream: LineStream
    var hasGreeted = false
    /// Until when it is not read; `nil` if it is.
    var restsUntil: Duration?

    private var allowance: Allowance

    init(_ peer: ChannelServer.Peer, _ file: Int32, at now: Duration) {
        self.peer = peer
        stream = LineStream(file)
        allowance = Allowance(rate: ChannelServer.rate, burst: ChannelServer.burst, at: now)
    }

    deinit { ForeignCloser.shared.close(CollectionOfOne(stream.file), of: peer.unit, isOwnSocket: true) }

    /// Whether it may say another line.
    func spend(at now: Duration) -> Bool { allowance.spend(at: now) }

    /// Takes what has come. Descriptors that came along are closed elsewhere, as lines have none.
    func read() -> (arrival: LineStream.Arrival, descriptors: Int) {
        var descriptors: [Int32] = []
        let arrival = stream.read { file, room in
            let (count, _, files) = ForeignMessage.receive(file, into: room)
            descriptors = files
            return count
        }
        ForeignCloser.shared.close(descriptors, of: peer.unit)
        return (arrival, descriptors.count)
    }

    func send(_ message: SupervisorMessage) -> Bool { stream.send { message.encoded($0) } }
}
