import PlimsollTesting

@testable import Plimsoll
@testable import PlimsollLifecycle

#if Spill
@testable import PlimsollSpill
#endif

/// Bytes taken from the front of an input, to choose the operations on the rest.
struct Input {
    private var rest: ArraySlice<UInt8>

    init(_ bytes: [UInt8]) { rest = bytes[...] }

    var isEmpty: Bool { rest.isEmpty }
    mutating func byte() -> UInt8 { rest.popFirst() ?? 0 }
    mutating func number() -> Int { (0..<4).reduce(0) { number, _ in number << 8 | Int(byte()) } }

    mutating func take(_ count: Int) -> [UInt8] {
        defer { rest = rest.dropFirst(count) }
        return Array(rest.prefix(count))
    }
}

/// Returns the bytes as content under a mark, in version 1 and with the checksum that belongs to it.
private func sealed(_ mark: String, _ bytes: [UInt8]) -> [UInt8] {
    var content = KeptBytes(mark, version: 1)
    for start in stride(from: 0, to: bytes.count - 7, by: 8) {
        content.put(bytes[start..<start + 8].reversed().reduce(0) { $0 << 8 | Int64($1) })
    }
    return content.sealed()
}

let stateFormats = [
    Format(name: "state-file") { bytes in
        guard let file = try? StateFile(parsing: bytes) else { return }
        require(!file.records.isEmpty && file.end <= bytes.count, "records lie in the file")
        require(file.records.last?.upperBound == file.end, "the end is that of the last record")
    },
    // Damages a written file: no record is read that was not written.
    Format(name: "state-file-damaged") { bytes in
        var input = Input(bytes)
        let nonce = UInt64(input.number())
        var file = StateFile.header(nonce: nonce), written: [[UInt8]] = []
        for number in 0..<UInt32(1 + input.byte() % 4) {
            let payload = input.take(Int(input.byte()))
            file += StateFile.recordHeader(payload, number: number, at: file.count, nonce: nonce) + payload
            written.append(payload)
        }
        let whole = try? StateFile(parsing: file)
        require(whole.map { $0.records.map { Array(file[$0]) } } == written, "an undamaged file is read as written")
        for _ in 0..<8 where !input.isEmpty {
            let kind = input.byte() % 4, place = input.number() % (file.count + 1)
            switch kind {
            case 0 where place < file.count: file[place] = input.byte()
            case 1 where place < file.count: file[place] ^= 1 << (input.byte() % 8)
            case 2: file.removeSubrange(place...)
            default: file += input.take(Int(input.byte()))
            }
            if file.isEmpty { return }
        }
        guard let damaged = try? StateFile(parsing: file) else { return }
        // A checksum of 32 bits misses one damage in four thousand million, and eight changed bytes aim at no
        // collision.
        require(written.starts(with: damaged.records.map { Array(file[$0]) }), "records are those written, from the first on")
    },
    Format(name: "preserved-state") { bytes in
        if let (content, version) = PreservedState.unwrap(bytes) {
            require(PreservedState.wrap(content, version: version) == bytes, "unwrapped bytes can be wrapped again")
        }
        if let deltas = PreservedState.split(bytes) {
            require(PreservedState.join(deltas) == bytes, "split changes can be joined again")
        }
        if let record = LaunchRecord(bytes) { require(LaunchRecord(record.bytes) == record, "a launch record is kept") }
    },
    // Reads the fields behind the checksum, which random input does not reach.
    Format(name: "deferred-tasks") { bytes in
        for content in [bytes, sealed("PLIMSOLL-DEFERRED", bytes)] {
            guard let asks = try? DeferredQueue.decode(content) else { continue }
            var queue = DeferredQueue()
            queue.takeOver(asks, now: .seconds(1), wall: .seconds(1_000_000_000))
            for ask in queue.inOrder {
                queue.ended(ask, .unfinished, now: .seconds(2), wall: .seconds(1_000_000_001))
                require(queue.inOrder.allSatisfy { $0.delay >= .zero }, "no request is retried at once, again and again")
            }
            require((try? DeferredQueue.decode(queue.encoded))?.count == queue.inOrder.count, "requests are kept")
        }
    },
    Format(name: "handovers") { bytes in
        for content in [bytes, sealed("PLIMSOLL-HANDOVERS", bytes)] {
            let store = MemoryStateStore(), handovers = HandoverStore { .seconds(1_000_000_000) }
            try? store.write(StateName.handovers, content)
            guard handovers.persist(in: store) == nil else { continue }
            let old = handovers.claim()
            require(handovers.take("new", [1], for: nil) == nil, "new work is kept beside old work")
            let new = handovers.claim()
            require(new.count == 1 && !old.contains { $0.id == new[0].id }, "new work has an identifier of its own")
        }
    },
    Format(name: "snapshot") { bytes in
        let cache = PurgeableCache<String, [UInt8]>("fuzz", limit: .mebibytes(1)) { _, value in value.count }
        let store = MemoryStateStore()
        // Content behind a version is tried, too, as four right bytes by chance are rare.
        for content in [bytes, [1, 0, 0, 0] + bytes] {
            try? store.write("snapshot", content)
            let restoration = try? cache.restore(from: store, as: "snapshot")
            require(cache.statistics.count <= restoration?.restored ?? 0, "what is in the cache was counted")
            require(cache.statistics.byteCount >= 0, "costs are not negative")
            cache.removeAll()
        }
    },
]

#if Spill
let spillFormats = [
    Format(name: "spill-record") { bytes in
        var input = Input(bytes)
        let record = SpillRecord(version: 1, generation: 2, prefix: "fuzz", secret: [1, 2, 3])
        let key = input.take(Int(input.byte() % 16)), value = input.take(Int(input.byte()))
        let written = Duration.seconds(1000), left = TimeLeft(toLive: .seconds(Int(input.byte()) + 1))
        guard var stored = record.bytes(key, value, left, at: written) else { return }
        let found = try? record.value(of: key, in: stored, at: written)
        require(found?.bytes == value && found?.left == left, "a record is read as written")
        _ = try? record.value(of: key, in: bytes, at: written)
        guard !input.isEmpty else { return }
        let original = stored
        for _ in 0..<4 where !input.isEmpty { stored[input.number() % stored.count] = input.byte() }
        if stored != original {
            require((try? record.value(of: key, in: stored, at: written)) == nil, "a forged record is refused")
        }
    }
]
#else
let spillFormats: [Format] = []
#endif
