import Glibc
import Hummingbird
import PlimsollHummingbird
import PlimsollService
import TestServers
import Testing

/// The `Host` header of requests over a socket.
@Suite(.timeLimit(.minutes(5))) struct HostileHostTests {
    /// Sends `lines` as the head of a request and returns the first line of the answer, with the body.
    private static func ask(_ port: UInt16, _ lines: [String]) async throws -> String {
        let file = Loopback.connect(to: port)
        defer { close(file) }
        let text = (lines + ["Connection: close", "", ""]).joined(separator: "\r\n")
        #expect(send(file, text, text.utf8.count, Int32(MSG_NOSIGNAL)) == text.utf8.count)
        var answer: [UInt8] = [], buffer = [UInt8](repeating: 0, count: 65536)
        await until("an answer") {
            let count = recv(file, &buffer, buffer.count, Int32(MSG_DONTWAIT))
            if count > 0 { answer += buffer[..<count] }
            return count == 0 || (count < 0 && errno != EAGAIN)
        }
        return String(decoding: answer, as: UTF8.self)
    }

    @Test func `a page is answered to an address, localhost and a name on the list, and to no other host`() async throws {
        try await Harness().application({ ($0.allowsChanges, $0.hosts) = (true, ["shop.internal"]) }).test(.live) { tester in
            let port = try #require(tester.port.flatMap { UInt16(exactly: $0) })
            for host in [
                "localhost:\(port)", "LOCALHOST", "127.0.0.1:\(port)", "[::1]:\(port)", "shop.internal.",
                "Shop.Internal:80",
            ] {
                let answer = try await Self.ask(port, ["GET /plimsoll/metrics HTTP/1.1", "Host: \(host)"])
                #expect(answer.hasPrefix("HTTP/1.1 200 OK\r\n") && answer.contains("plimsoll_level 0"), "\(host)")
            }
            let hostile = [
                ["Host: evil.example:\(port)"], ["Host: localhost", "Host: evil.example"],
                ["Host: evil.example", "Host: localhost"],
                ["Host: localhost", "Host: localhost"], ["Host: user@localhost"], ["Host: localhost.evil.example"],
                ["Host: "], [],
                ["Host: 127.0.0.1.evil.example"], ["Host: 0x7f000001"], ["Host: localhost, evil.example"],
                ["X-Forwarded-Host: localhost", "Host: evil.example"],
            ]
            for headers in hostile {
                for request in [
                    "GET /plimsoll", "GET /plimsoll/metrics", "GET /plimsoll/ui",
                    "POST /plimsoll/simulate?level=critical",
                ] {
                    let origin = headers.last.map { [$0.replacing("Host: ", with: "Origin: http://")] } ?? []
                    let answer = try await Self.ask(port, ["\(request) HTTP/1.1"] + headers + origin)
                    // The server's own parser refuses with 400.
                    #expect(
                        answer.hasPrefix("HTTP/1.1 421 ") || answer.hasPrefix("HTTP/1.1 400 "),
                        "\(request) \(headers): \(answer.prefix(200))")
                    #expect(
                        !answer.contains("plimsoll_level") && !answer.contains("\"level\"")
                            && !answer.contains("<script"))
                }
                let health = try await Self.ask(port, ["GET /healthz HTTP/1.1"] + headers)
                #expect(
                    health.hasPrefix("HTTP/1.1 200 ") || health.hasPrefix("HTTP/1.1 400 "),
                    "\(headers): \(health.prefix(200))")
            }
            let none = try await Self.ask(port, ["GET /plimsoll HTTP/1.0"])
            #expect(none.contains(" 421 ") || none.contains(" 400 "), "\(none.prefix(200))")
        }
    }
}
