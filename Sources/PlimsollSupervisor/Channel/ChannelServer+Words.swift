import CPlimsollSupervisor
import Glibc
import PlimsollLinux

extension ChannelServer {
    /// Whether the connection has sent something that was not taken yet: it rests, or there was no time. What it said before may not be so any more.
    func hasUnheard(_ id: UInt64) -> Bool {
        guard let connection = connections[id] else { return false }
        return connection.stream.hasLine || plimsoll_ready(connection.stream.file, POLLIN, 0) != 0
    }
}
