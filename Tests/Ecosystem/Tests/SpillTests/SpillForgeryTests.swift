import Plimsoll
import PlimsollSpill
import PlimsollTesting
import Synchronization
import TestServers
import Testing

/// Records that other programs have put into the store: refused, counted, and never returned.
@Suite(.timeLimit(.minutes(5))) struct SpillForgeryTests {
    private typealias Store = SpillPressureTests.HeldStore
    private static let secret = Array("0123456789abcdef0123456789abcdef".utf8)

    /// CRC-32C, bit by bit.
    private static func checksum(_ bytes: [UInt8]) -> UInt32 {
        ~bytes.reduce(~0) { sum, byte in
            (0..<8).reduce(sum ^ UInt32(byte)) { sum, _ in sum & 1 == 1 ? sum >> 1 ^ 0x82f6_3b78 : sum >> 1 }
        }
    }

    private static func littleEndian(_ number: some FixedWidthInteger) -> [UInt8] {
        withUnsafeBytes(of: number.littleEndian) { Array($0) }
    }

    /// A record that any program with knowledge of the format can write: with a checksum, but without the secret.
    private static func forged(
        _ key: String, _ value: String, format: UInt8, version: UInt32 = 1, generation: UInt64, code: [UInt8]? = nil
    ) -> [UInt8] {
        let (key, value) = (Array(key.utf8), Array(value.utf8))
        let head =
            Array("PLSP".utf8) + [format] + littleEndian(version) + littleEndian(generation)
            + littleEndian(UInt32(key.count)) + littleEndian(UInt32(value.count)) + littleEndian(0 as Int64)
            + littleEndian(Int64.max) + littleEndian(Int64.max)
        return head + (code ?? littleEndian(checksum(head + key + value))) + key + value
    }

    private static func replace(_ store: Store, _ change: ([UInt8]) -> [UInt8]) {
        store.state.withLock { state in state.records = state.records.mapValues(change) }
    }

    private static func expectRefused(_ texts: SpilledTexts, key: String = "key 0", _ comment: Comment) async throws {
        let damaged = texts.spilled.statistics.damaged
        #expect(try await texts.text(key, loaded: "loaded") == "loaded", comment)
        #expect(texts.spilled.statistics.damaged == damaged + 1 && texts.spilled.statistics.hits == 0, comment)
        #expect(texts.spilled.statistics.lastProblem?.contains("differ from the stored value") == true, comment)
    }

    @Test func `a record with a right checksum and no secret is refused`() async throws {
        let codes: [[UInt8]?] = [nil, [UInt8](repeating: 0, count: 32), [UInt8](repeating: 255, count: 32), [], [1]]
        for secret in [nil, Self.secret] {
            for format in [1, 2, 3, 4] as [UInt8] {
                for code in codes {
                    let store = Store(), texts = SpilledTexts(store.store, generation: 7, secret: secret)
                    texts.spill(0..<1)
                    await texts.written(1)
                    Self.replace(store) { _ in Self.forged("key 0", "forged", format: format, generation: 7, code: code)
                    }
                    try await Self.expectRefused(texts, "format \(format), code \(String(describing: code))")
                }
            }
        }
    }

    @Test func `a value changed under the old code is refused for each sampled byte`() async throws {
        let store = Store(), texts = SpilledTexts(store.store, generation: 7, secret: Self.secret)
        texts.spill(0..<1)
        await texts.written(1)
        let records = store.state.withLock { $0.records }, good = try #require(records.values.first)
        var wrongs: [(what: String, record: [UInt8])] = [("a byte more", good + [0])]
        for index in [0, 4, 5, 9, 17, 21, 25, 33, 41, 48, 49, 64, 80, 81, 84, good.count - 1] {
            var bent = good
            bent[index] ^= 1
            wrongs.append(("byte \(index)", bent))
        }
        for count in [0, 1, 48, 49, 80, 81, 82, good.count - 1] {
            wrongs.append(("the first \(count) bytes", Array(good.prefix(count))))
        }
        for wrong in wrongs {
            // A separate store, because a refused record is removed.
            let store = Store()
            store.state.withLock { $0.records = records.mapValues { _ in wrong.record } }
            try await Self.expectRefused(SpilledTexts(store.store, generation: 7, secret: Self.secret), "\(wrong.what)")
        }
    }

    @Test func `another process's record is found with the same secret, and refused without`() async throws {
        var other = Self.secret
        other[31] ^= 1
        for (theirs, ours) in [
            (other, Self.secret), (nil, Self.secret), (Self.secret, nil), (Self.secret.dropLast() + [], Self.secret),
        ] as [([UInt8]?, [UInt8]?)] {
            let store = Store(), writer = SpilledTexts(store.store, generation: 7, secret: theirs)
            writer.spill(0..<1, "theirs")
            await writer.written(1)
            try await Self.expectRefused(
                SpilledTexts(store.store, generation: 7, secret: ours),
                "\(String(describing: theirs)) and \(String(describing: ours))")
        }
        let store = Store(), writer = SpilledTexts(store.store, generation: 7, secret: Self.secret)
        writer.spill(0..<1, "shared")
        await writer.written(1)
        let reader = SpilledTexts(store.store, generation: 7, secret: Self.secret)
        #expect(
            try await reader.text("key 0", loaded: "loaded").hasPrefix("shared 0")
                && reader.spilled.statistics.hits == 1)
    }

    @Test func `A13 another process's record without a secret is refused, even in the same generation`() async throws {
        let written = await #expect(processExitsWith: .success, observing: [\.standardOutputContent]) {
            let store = SpillPressureTests.HeldStore(), writer = SpilledTexts(store.store, generation: 7, secret: nil)
            writer.spill(0..<1, "theirs")
            await writer.written(1)
            for record in store.state.withLock({ $0.records.values }) {
                print("record:", record.map { String($0) }.joined(separator: " "))
            }
        }
        let line = try #require(
            String(decoding: written?.standardOutputContent ?? [], as: UTF8.self).split(separator: "\n").first { $0.hasPrefix("record: ") })
        let record = line.split(separator: " ").dropFirst().compactMap { UInt8($0) }
        #expect(record.starts(with: Array("PLSP".utf8)) && record.count > 60)
        let store = Store(), texts = SpilledTexts(store.store, generation: 7, secret: nil)
        texts.spill(0..<1)
        await texts.written(1)
        Self.replace(store) { _ in record }
        try await Self.expectRefused(texts, "of another process")
    }

    @Test func `a record of another key, of another cache or of another generation is refused`() async throws {
        let store = Store(), writer = SpilledTexts(store.store, generation: 7, secret: Self.secret)
        writer.spill(0..<2)
        await writer.written(2)
        let names = store.state.withLock { $0.records.keys.sorted() }
        #expect(names.count == 2)
        // Stores each record under the other's name.
        store.state.withLock {
            ($0.records[names[0]], $0.records[names[1]]) = ($0.records[names[1]], $0.records[names[0]])
        }
        let reader = SpilledTexts(store.store, generation: 7, secret: Self.secret)
        for key in 0..<2 { try await Self.expectRefused(reader, key: "key \(key)", "of another key") }

        for (name, generation) in [("others", 7), ("texts", 8)] as [(String, UInt64)] {
            let elsewhere = Store(),
                other = SpilledTexts(elsewhere.store, generation: generation, secret: Self.secret, name: name)
            other.spill(0..<1)
            await other.written(1)
            let record = try #require(elsewhere.state.withLock { $0.records.values.first })
            let ours = Store(), texts = SpilledTexts(ours.store, generation: 7, secret: Self.secret)
            texts.spill(0..<1)
            await texts.written(1)
            Self.replace(ours) { _ in record }
            try await Self.expectRefused(texts, "of \(name), generation \(generation)")
        }
    }

    @Test func `a secret that is too short to keep is refused at once`() async {
        await #expect(processExitsWith: .failure) {
            let manager = ResourceManager(source: ScriptedPressureSource())
            let cache = PurgeableCache<String, String>("texts", cost: { _, _ in 1 })
            _ = SpilledCache(
                cache, to: SpillPressureTests.HeldStore().store, manager: manager, secret: Array(repeating: 1, count: 15))
        }
    }
}
