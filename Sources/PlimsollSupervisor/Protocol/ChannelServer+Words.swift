import CPlimsollSupervisor
import Glibc
import PlimsollLinux

extension ChannelServer {
    /// Returns true if the connection has sent data that was not read yet, because the connection is paused or time
    /// was short.
    /// Unread data may contradict what the service said before.
    func hasUnheard(_ id: UInt64) -> Bool {
        guard let connection = connections[id] else { return false }
        return connection.stream.hasLine || plimsoll_ready(connection.stream.file, POLLIN, 0) != 0
    }
}
