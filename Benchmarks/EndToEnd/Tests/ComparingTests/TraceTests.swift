import Testing

@testable import Comparing

@Suite struct TraceTests {
    private static let limit = 256 << 20

    private func trace(_ name: String, seed: UInt64 = 7, seconds: Double = 20) -> [Arrival] {
        Trace(LoadKind.named(name)!, limit: Self.limit, rate: 1000, seconds: seconds, seed: seed).arrivals
    }

    @Test(arguments: LoadKind.all.map(\.name))
    func `a seed makes the same requests each time`(name: String) {
        #expect(trace(name) == trace(name))
        #expect(trace(name) != trace(name, seed: 8))
    }

    @Test func `look-ups are the same under every load`() {
        func lookUps(_ name: String) -> [Arrival] {
            trace(name).filter { $0.route == .picture || $0.route == .session }
        }
        #expect(lookUps("calm") == lookUps("burst-3"))
        #expect(lookUps("calm") == lookUps("leak"))
    }

    @Test func `requests are in order, at the rate, and four fifths are for pictures`() {
        let arrivals = trace("calm")
        #expect(arrivals.map(\.at) == arrivals.map(\.at).sorted())
        #expect((19_000...21_000).contains(arrivals.count))
        let pictures = arrivals.count { $0.route == .picture }
        #expect((0.78...0.82).contains(Double(pictures) / Double(arrivals.count)))
    }

    @Test func `the second half of a trace has other popular pictures`() {
        func favourite(_ range: Range<Double>) -> Int? {
            let asked = trace("calm").filter { $0.route == .picture && range.contains($0.at) }
            return Dictionary(grouping: asked, by: \.number).max { $0.value.count < $1.value.count }?.key
        }
        #expect(favourite(0..<5) == favourite(5..<10))
        #expect(favourite(0..<10) != favourite(10..<20))
    }

    @Test func `uploads are shares of the limit, as many at a time as there are uploaders`() {
        let one = trace("burst-1").filter { $0.route == .upload },
            three = trace("burst-3").filter { $0.route == .upload }
        #expect((12...25).contains(one.count))
        #expect((36...75).contains(three.count))
        #expect(three.allSatisfy { (0.08..<0.23).contains(Double($0.number) / Double(Self.limit)) })
        #expect(zip(one, one.dropFirst()).allSatisfy { $1.at - $0.at >= 0.6 })
    }

    @Test func `exports and leaks come on time`() {
        #expect(trace("burst-1", seconds: 30).filter { $0.route == .export }.map(\.at) == [5, 20])
        let leaks = trace("leak", seconds: 30).filter { $0.route == .leak }
        #expect(leaks.count == 30)
        #expect(leaks.allSatisfy { $0.number == Self.limit / 100 && $0.most == Int(Double(Self.limit) * 0.30) })
    }

    @Test func `a warm-up asks for look-ups alone at half the rate`() {
        let trace = Trace(LoadKind.named("burst-1")!, limit: Self.limit, rate: 1000, seconds: 20, warmUp: 10, seed: 7)
        let before = trace.arrivals.filter { $0.at < 0 }
        #expect((4_500...5_500).contains(before.count))
        #expect(before.allSatisfy { $0.at >= -10 && ($0.route == .picture || $0.route == .session) })
    }

    @Test func `requests are written as HTTP`() {
        #expect(
            Arrival(at: 0, route: .picture, number: 5).request == "GET /picture/5 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        #expect(
            Arrival(at: 0, route: .upload, number: 9).request
                == "POST /upload?bytes=9 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
    }
}
