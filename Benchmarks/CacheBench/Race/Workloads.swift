import Foundation

/// The races, with their contenders and requests.
struct Workloads {
    let externals: [ExternalPeer]

    static let names = ["hits", "get-or-insert", "mixed", "string-keys"] + objects + ["hot-key"] + sized
    static let sized = sizes.map { "hits-\($0)" }
    /// Races with counted references as values: with entries that fit into a core's own caches, and with entries that
    /// do not.
    static let objects = ["objects-10000", "string-values-10000", "objects", "string-values"]
    private static let resident = 100_000, universe = 1_000_000, few = 10_000
    /// Further numbers of entries for hits.
    private static let sizes = [10_000, 1_000_000, 10_000_000]

    func race(_ name: String) throws -> Race {
        switch name {
        case "hits": Race(workload: name, contenders: try hits())
        case "get-or-insert": Race(workload: name, contenders: try getOrInsert())
        case "mixed": Race(workload: name, contenders: try mixed())
        case "string-keys": Race(workload: name, contenders: try stringKeys())
        case "objects": Race(workload: name, contenders: try objects(Self.resident))
        case "objects-10000": Race(workload: name, contenders: try objects(Self.few))
        case "string-values": Race(workload: name, contenders: stringValues(Self.resident))
        case "string-values-10000": Race(workload: name, contenders: stringValues(Self.few))
        case "hot-key": Race(workload: name, contenders: try hotKey())
        default:
            if let size = Self.sizes.first(where: { name == "hits-\($0)" }) {
                Race(workload: name, contenders: sized(size))
            } else {
                throw Failure.failed("no workload is named \(name): there are \(Self.names.joined(separator: ", "))")
            }
        }
    }

    /// Returns contenders for hits on all entries, each as likely.
    private func hits() throws -> [any Contender] {
        let keys = Keys.keys(Self.resident), streams = Keys.uniform(keys)
        return Self.numbers(keys, streams).lookers() + [Self.foundationNumbers(keys, streams)]
            + (try external(.look, keys, streams))
    }

    /// Returns contenders for the usual load of a cache: a tenth of a million keys fits, and few keys are popular.
    private func getOrInsert() throws -> [any Contender] {
        let keys = Keys.keys(Self.universe), streams = Keys.zipf(keys), first = Array(keys.prefix(Self.resident))
        let foundation = Self.foundationField(first, streams)
        return Field(entries: first.map { ($0, $0) }, capacity: Self.resident, streams: streams).inserters()
            + [foundation.inserter("NSCache", FoundationStore(capacity: Self.resident))]
            + (try external(.lookOrInsert, first, streams))
    }

    /// Returns contenders for three look-ups and a write, of the same keys.
    private func mixed() throws -> [any Contender] {
        let keys = Keys.keys(Self.universe), streams = Keys.zipf(keys), first = Array(keys.prefix(Self.resident))
        let foundation = Self.foundationField(first, streams)
        return Field(entries: first.map { ($0, $0) }, capacity: Self.resident, streams: streams).writers()
            + [foundation.writer("NSCache", FoundationStore(capacity: Self.resident))]
            + (try external(.lookAndWrite, first, streams))
    }

    private func stringKeys() throws -> [any Contender] {
        let keys = Keys.keys(Self.resident), streams = Keys.uniform(keys)
        // Requests use other strings than the inserts, as in real services.
        let texts = Field(
            entries: keys.map { (Keys.text($0), $0) }, capacity: Self.room, streams: Keys.translated(streams, Keys.text)
        )
        let foundation = Field(
            entries: keys.map { (Self.object(Keys.text($0)), Constant(Item(1))) }, capacity: Self.room,
            streams: Keys.translated(streams) { Self.object(Keys.text($0)) })
        return texts.lookers() + [foundation.looker("NSCache", FoundationStore(capacity: Self.room))]
            + (try external(.look, keys, streams, kind: .text))
    }

    private func objects(_ count: Int) throws -> [any Contender] {
        let keys = Keys.keys(count), streams = Keys.uniform(keys)
        // Values of different weights, so that each value has to be read.
        let field = Field(
            entries: keys.map { ($0, Item(Int(truncatingIfNeeded: $0 & 7))) }, capacity: Self.room, streams: streams)
        return field.lookers() + [field.handingDictionary(), field.borrower(), Self.foundationNumbers(keys, streams)]
            + (try external(.look, keys, streams))
    }

    private func stringValues(_ count: Int) -> [any Contender] {
        let keys = Keys.keys(count), streams = Keys.uniform(keys)
        let foundation = Field(
            entries: keys.map { (Self.object($0), Self.object(Keys.text($0))) }, capacity: Self.room,
            streams: Keys.translated(streams) { Self.object($0) })
        let field = Field(entries: keys.map { ($0, Keys.text($0)) }, capacity: Self.room, streams: streams)
        return field.lookers() + [field.handingDictionary(), field.borrower()]
            + [foundation.looker("NSCache", FoundationStore(capacity: Self.room))]
    }

    /// Returns contenders for requests of one key by all threads.
    private func hotKey() throws -> [any Contender] {
        let keys = Keys.keys(Self.resident), streams = Keys.uniform([keys[0]])
        return Self.numbers(keys, streams).lookers() + [Self.foundationNumbers(keys, streams)]
            + (try external(.look, keys, streams))
    }

    private func sized(_ size: Int) -> [any Contender] {
        let keys = Keys.keys(size)
        let field = Field(entries: keys.map { ($0, $0) }, capacity: size + size / 4, streams: Keys.uniform(keys))
        return [field.looker(ourName, PlimsollStore(capacity: field.capacity)), field.dictionary()]
    }

    // MARK: Parts

    /// More than the entries, so that all stay.
    private static let room = resident + resident / 4

    private static func numbers(_ keys: [UInt64], _ streams: [[UInt64]]) -> Field<UInt64, UInt64> {
        Field(entries: keys.map { ($0, $0) }, capacity: room, streams: streams)
    }

    private static func object(_ number: UInt64) -> Constant<NSNumber> { Constant(NSNumber(value: number)) }
    private static func object(_ text: String) -> Constant<NSString> { Constant(NSString(string: text)) }

    private static func foundationField(_ keys: [UInt64], _ streams: [[UInt64]]) -> Field<
        Constant<NSNumber>, Constant<NSNumber>
    > {
        let numbers = keys.map { Self.object($0) }
        return Field(
            entries: numbers.map { ($0, $0) }, capacity: room, streams: Keys.translated(streams) { object($0) })
    }

    private static func foundationNumbers(_ keys: [UInt64], _ streams: [[UInt64]]) -> any Contender {
        let field = Field(
            entries: keys.map { (Self.object($0), Constant(Item(1))) }, capacity: room,
            streams: Keys.translated(streams) { object($0) })
        return field.looker("NSCache", FoundationStore(capacity: room))
    }

    private func external(_ work: Work, _ keys: [UInt64], _ streams: [[UInt64]], kind: KeyKind = .number) throws
        -> [any Contender]
    {
        let able = externals.filter { $0.works.contains(work) && $0.kinds.contains(kind) }
        guard !able.isEmpty else { return [] }
        let files = try Keys.Files([keys] + streams), capacity = work == .look ? Self.room : Self.resident
        return try able.map { try ExternalContender($0, [work.rawValue, kind.rawValue, "\(capacity)"] + files.paths) }
    }
}
