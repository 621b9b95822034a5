import Glibc
import PlimsollLinux

/// The connection of one service, with a token bucket.
final class ChannelConnection {
    let peer: ChannelServer.Peer
    var stream: LineStream
    var hasGreeted = false
    /// End of the pause in reading; `nil` while the connection is read.
    var restsUntil: Duration?

    private var allowance: Allowance

    init(_ peer: ChannelServer.Peer, _ file: Int32, at now: Duration) {
        self.peer = peer
        stream = LineStream(file)
        allowance = Allowance(rate: ChannelServer.rate, burst: ChannelServer.burst, at: now)
    }

    deinit { ForeignCloser.shared.close(CollectionOfOne(stream.file), of: peer.unit, isOwnSocket: true) }

    /// Takes a token for one more line. Returns false if none is left.
    func spend(at now: Duration) -> Bool { allowance.spend(at: now) }

    /// Reads the bytes that have arrived. Lines carry no descriptors, so any that came along are closed on another
    /// thread.
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
