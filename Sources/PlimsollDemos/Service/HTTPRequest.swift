/// The subset of HTTP/1.1 that the demo's service needs: GET requests without a body, keep-alive.
struct HTTPRequest: Equatable {
    /// Path of the request, without the query.
    var path: Substring
    /// Text after the question mark.
    var query: Substring?
    var closes: Bool

    enum Parsed: Equatable {
        /// More bytes are needed.
        case incomplete
        /// Refused with this status. The connection is closed afterwards, because the start of the next request is
        /// unknown.
        case refused(Int)
        /// A request with its length in bytes.
        case request(HTTPRequest, length: Int)
    }

    /// Largest size of a request's head.
    static let longest = 8192

    static func parse(_ bytes: ArraySlice<UInt8>) -> Parsed {
        guard let end = HTTPHead.length(in: bytes) else { return bytes.count >= longest ? .refused(431) : .incomplete }
        guard end <= longest else { return .refused(431) }
        let head = String(decoding: bytes.prefix(end), as: UTF8.self)
        // "\r\n" is one Character.
        let lines = head.split(separator: "\r\n", omittingEmptySubsequences: true)
        guard let words = lines.first?.split(separator: " ", omittingEmptySubsequences: false), words.count == 3,
            words[2] == "HTTP/1.1",
            words[1].hasPrefix("/")
        else { return .refused(400) }
        guard words[0] == "GET" else { return .refused(405) }
        let target = words[1].split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
        let closes = lines.dropFirst().contains { $0.lowercased() == "connection: close" }
        return .request(
            HTTPRequest(path: target[0], query: target.count > 1 ? target[1] : nil, closes: closes), length: end)
    }

    /// Returns the head of a response.
    static func responseHead(_ status: Int, length: Int) -> String {
        let reasons = [
            200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed",
            431: "Request Header Fields Too Large",
            503: "Service Unavailable",
        ]
        return "HTTP/1.1 \(status) \(reasons[status] ?? "Error")\r\nContent-Length: \(length)\r\n\r\n"
    }
}

/// Parsing that requests and responses have in common.
enum HTTPHead {
    /// Returns the number of bytes up to and including the empty line that ends a head; `nil` if the head is
    /// incomplete.
    static func length(in bytes: ArraySlice<UInt8>) -> Int? {
        let end: [UInt8] = [13, 10, 13, 10]
        guard bytes.count >= end.count else { return nil }
        for start in bytes.startIndex...(bytes.endIndex - end.count)
        where bytes[start..<start + end.count].elementsEqual(end) {
            return start + end.count - bytes.startIndex
        }
        return nil
    }
}
