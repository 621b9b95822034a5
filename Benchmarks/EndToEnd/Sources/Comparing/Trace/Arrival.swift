/// A route of the service.
public enum Route: String, Codable, Sendable, CaseIterable {
    case picture, session, upload, export, leak

    /// Seconds in which an answer has to come after the request was sent.
    var patience: Double {
        switch self {
        case .picture, .session, .leak: 1
        case .upload: 5
        case .export: 30
        }
    }
}

/// One request of a trace.
public struct Arrival: Equatable, Sendable {
    /// Seconds from the beginning of the load at which the request is due.
    public var at: Double
    public var route: Route
    /// The id of a picture or session; bytes of anything else.
    public var number: Int
    /// Bytes at which a leak is emptied.
    public var most = 0

    /// The request as text.
    var request: String {
        let line =
            switch route {
            case .picture, .session: "GET /\(route.rawValue)/\(number)"
            case .leak: "GET /leak?bytes=\(number)&most=\(most)"
            case .upload, .export: "POST /\(route.rawValue)?bytes=\(number)"
            }
        let length = route == .upload || route == .export ? "Content-Length: 0\r\n" : ""
        return "\(line) HTTP/1.1\r\nHost: localhost\r\n\(length)\r\n"
    }
}
