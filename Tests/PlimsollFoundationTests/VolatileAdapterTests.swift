import Foundation
import Plimsoll
import PlimsollFoundation
import Testing

@Suite struct VolatileAdapterTests {
    @Test(arguments: [0, 1, 5000, 400_000]) func `Data is kept byte for byte, under keys of Foundation`(size: Int) {
        let cache = VolatileCache<UUID, Data>("data")
        let keys = (0..<5).map { _ in UUID() }
        for (number, key) in keys.enumerated() { #expect(cache.insert(Data(repeating: UInt8(number), count: size), forKey: key)) }
        for (number, key) in keys.enumerated() { #expect(cache.value(forKey: key) == Data(repeating: UInt8(number), count: size)) }
        // A slice does not begin at zero.
        let slice = Data(0..<100)[40..<60]
        cache.insert(slice, forKey: keys[0])
        #expect(cache.value(forKey: keys[0]) == slice)
    }

    struct Session: VolatileCodable, Equatable {
        var user: String
        var seen: Date
        var roles: [String: Int]
    }

    struct Odd: VolatileCodable {
        var name = "odd"
        var number: Double
    }

    @Test func `Codable values are kept, and a value that cannot be coded is refused`() {
        let sessions = VolatileCache<String, Session>("sessions")
        let session = Session(user: "k\u{FC}ste", seen: Date(timeIntervalSince1970: 1_000_000), roles: ["admin": 1])
        #expect(sessions.insert(session, forKey: "a") && sessions.value(forKey: "a") == session)
        let odd = VolatileCache<Int, Odd>("odd")
        #expect(!odd.insert(Odd(number: .infinity), forKey: 1) && odd.count == 0)
    }
}
