#if Spill
/// The address of a server.
enum SpillEndpoint: Sendable, Hashable, CustomStringConvertible {
    case host(String, port: UInt16)
    /// The path of a socket.
    case socket(String)

    var description: String {
        switch self {
        case .host(let host, let port): "\(host):\(port)"
        case .socket(let path): path
        }
    }
}

/// Points in time on the machine's running time.
enum Instant {
    private static let start = SuspendingClock().now

    static var now: Duration { start.duration(to: SuspendingClock().now) }
    static func after(_ timeout: Duration) -> Duration { now + timeout }
}

extension Duration {
    /// The duration in milliseconds, at least 1, at most the largest C `int`.
    var milliseconds: Int32 {
        let (seconds, attoseconds) = components
        if seconds >= Int64(Int32.max / 1000) { return .max }
        return Int32(max(1, seconds * 1000 + attoseconds / 1_000_000_000_000_000))
    }
}
#endif
