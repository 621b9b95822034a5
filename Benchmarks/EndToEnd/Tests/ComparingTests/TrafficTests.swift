import Glibc
import Testing

@testable import Comparing

@Suite struct TrafficTests {
    private func read(_ text: String, chunk: Int) -> Answer {
        var answer = Answer()
        let bytes = Array(text.utf8)
        for start in stride(from: 0, to: bytes.count, by: chunk) {
            bytes[start..<min(bytes.count, start + chunk)].withUnsafeBytes { answer.read($0) }
        }
        return answer
    }

    @Test func `an answer is read from chunks of any size`() {
        let text = "HTTP/1.1 200 OK\r\nX-Cache: hit\r\ncontent-length: 6\r\n\r\n\r\n\r\nab"
        for chunk in 1...text.utf8.count {
            let answer = read(text, chunk: chunk)
            #expect(
                answer.isComplete && answer.status == 200 && answer.isHit == true && !answer.isMalformed,
                "chunks of \(chunk)")
        }
    }

    @Test(arguments: [
        "HTTP/1.1 200 OK\r\n\r\n", "SMTP 200\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nab",
    ])
    func `text that is no answer with a length is malformed`(text: String) {
        #expect(read(text, chunk: 1000).isMalformed)
    }

    @Test func `a refusal without a body is complete`() {
        let answer = read("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", chunk: 7)
        #expect(answer.isComplete && answer.status == 503 && answer.isHit == nil)
    }

    @Test func `all requests have failed where the port is closed`() throws {
        let trace = Trace(LoadKind.named("burst-1")!, limit: 64 << 20, rate: 1000, seconds: 3, seed: 1)
        let result = LoadGenerator(trace, port: try freePort()).run()
        #expect(result.goneAtSeconds != nil)
        #expect(result.good == 0)
        #expect(result.routes.values.reduce(0) { $0 + $1.failed } == trace.arrivals.count)
    }

    /// A port on loopback that was free a moment ago.
    private func freePort() throws -> UInt16 {
        let file = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        defer { close(file) }
        var address = sockaddr_in(), size = socklen_t(MemoryLayout<sockaddr_in>.size)
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        let isBound = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(file, $0, size) == 0 && getsockname(file, $0, &size) == 0
            }
        }
        try #require(isBound)
        return UInt16(bigEndian: address.sin_port)
    }
}
