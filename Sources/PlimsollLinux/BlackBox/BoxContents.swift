package import Plimsoll

/// The contents of a black box, oldest first. A value; records that are torn or were never written are left out.
package struct BoxContents: Sendable, Equatable {
    /// The process that wrote.
    package struct Writer: Sendable, Equatable {
        package var process: Int32
        package var program: String
        /// Version of the library.
        package var version: String
        /// `/proc/sys/kernel/random/boot_id`.
        package var boot: String
        /// Time of day at the start, since 1970.
        package var started: Duration
    }

    /// One reading of memory, and its judgement.
    package struct Sample: Sendable, Equatable {
        /// Time on the manager's clock; only differences mean anything.
        package var at: Duration
        /// Time of day, since 1970.
        package var wall: Duration
        package var usage: Int
        /// Bytes that could still be allocated; `nil` without a limit.
        package var available: Int?
        package var limit: Int?
        /// Bytes that registered caches held on the heap, and in volatile memory.
        package var charged: Int
        package var volatile: Int
        package var resident: Int
        /// Growth of unreclaimable memory that lasts, in bytes a second.
        package var growth: Int
        /// Volatile memory that the kernel had reclaimed since the group was made.
        package var lazyFreed: Int
        /// Processes that the kernel had killed in the group; `nil` if the kernel does not count.
        package var kills: Int?
        package var level: PressureLevel
        /// Level that the reading alone supports.
        package var observed: PressureLevel
        package var evidence: PressureEvidence
        package var isDryRun: Bool
        /// Number of background tasks that ran in this second.
        package var tasks: Int

        /// Memory that the kernel cannot reclaim; the usage without a limit.
        package var pinned: Int { limit.flatMap { limit in available.map { limit - $0 } } ?? usage }
    }

    /// A report of one action.
    package struct Report: Sendable, Equatable {
        package enum Outcome: UInt8, Sendable { case done, dryRun, refused, overran }

        /// Time on the manager's clock at which the action began.
        package var at: Duration
        package var took: Duration
        /// `PressureAction.severity`.
        package var severity: Int
        package var outcome: Outcome
        /// Bytes requested from purgeables, or held by the cancelled request.
        package var asked: Int
        package var released: Int
        package var releasedVolatile: Int
        /// Volatile memory found to be reclaimed by the kernel.
        package var taken: Int
        /// The reason of a refusal, the names of handlers that exceeded their time, or the cancelled request.
        package var text: String

        /// True if the action was to cancel a request.
        package var isCancelling: Bool { severity == PressureAction.cancelLargestRequest(above: .zero).severity }
    }

    /// The bytes that registered purgeables and requests held at one time.
    package struct Table: Sendable, Equatable {
        package struct Row: Sendable, Equatable {
            package var name: String
            package var bytes: Int
            package var kind: Kind
        }

        /// The kind of a holder of memory. Requests of one name share a row.
        package enum Kind: UInt8, Sendable { case heap, volatile, request }

        package var at: Duration
        package var rows: [Row]
    }

    package var writer: Writer
    /// The end that the process itself recorded; `nil` if it recorded none.
    package var end: RecordedEnd?
    /// Processes killed in the group when the next run started; `nil` if unknown.
    package var killsAtNextStart: Int?
    /// Readings of the last turns, and before those one for each second, up to ten minutes.
    package var samples: [Sample]
    package var reports: [Report]
    package var tables: [Table]
    /// The last census of the heap; `nil` if there was none.
    package var census: RecordedCensus?

    /// The reason why a file is no black box that can be read.
    package struct Damage: Error, Sendable, Equatable, CustomStringConvertible {
        package var description: String
        /// True if the file was never a black box, so that nothing of one can be lost.
        package var isForeign: Bool
    }
}

extension BoxContents {
    /// Reads the bytes of a file.
    ///
    /// - Throws: `Damage` if the header cannot be read. Damaged records are left out.
    package init(_ bytes: [UInt8]) throws(Damage) {
        guard bytes.count >= 16, BoxReader.number(bytes[...], 4) == BoxLayout.magic else {
            throw Damage(description: "it does not begin as one", isForeign: true)
        }
        let version: UInt32 = BoxReader.number(bytes[...], 12)
        guard version == BoxLayout.version else {
            throw Damage(
                description: "it has format \(version), and this program reads \(BoxLayout.version)", isForeign: false)
        }
        guard bytes.count == BoxLayout.size else {
            throw Damage(description: "it has \(bytes.count) bytes instead of \(BoxLayout.size)", isForeign: false)
        }
        guard var header = BoxReader(bytes[..<BoxLayout.headerSize]) else {
            throw Damage(description: "its header is damaged", isForeign: false)
        }
        writer = Writer(&header)
        end = RecordedEnd(rawValue: bytes[BoxLayout.state])
        let kills: UInt32 = BoxReader.number(bytes[...], BoxLayout.killsAtNextStart)
        killsAtNextStart = kills == 0 ? nil : Int(kills) - 1
        let turns = Self.records(bytes, BoxLayout.turns) { Sample(&$0) }
        let seconds = Self.records(bytes, BoxLayout.seconds) { Sample(&$0) }
        samples = seconds.filter { second in turns.first.map { second.at < $0.at } ?? true } + turns
        reports = Self.records(bytes, BoxLayout.reports) { Report(&$0) }
        let tables = Self.records(bytes, BoxLayout.tables) { Table(&$0) }
        let latest = Self.records(bytes, BoxLayout.latest) { Table(&$0) }
        census = Self.records(bytes, BoxLayout.censuses) { RecordedCensus(&$0) }.last
        self.tables = tables + latest.filter { table in tables.last.map { table.at > $0.at } ?? true }
    }

    /// Returns the whole records of a ring, in the order of their sequence numbers.
    private static func records<Record>(
        _ bytes: [UInt8], _ ring: BoxLayout.Ring, _ read: (inout BoxReader) -> Record
    ) -> [Record] {
        (0..<ring.count).compactMap { index -> (UInt32, Record)? in
            let place = ring.offset + index * ring.size
            guard var reader = BoxReader(bytes[place..<place + ring.size]) else { return nil }
            let sequence = reader.take(UInt32.self)
            guard sequence > 0, ring.place(sequence) == place else { return nil }
            return (sequence, read(&reader))
        }
        .sorted { $0.0 < $1.0 }.map(\.1)
    }
}

extension BoxContents.Writer {
    init(_ reader: inout BoxReader) {
        reader.skip(to: 16)  // magic, version
        process = reader.take()
        started = .nanoseconds(reader.take(Int64.self))
        boot = reader.takeText(room: 40)
        version = reader.takeText(room: 40)
        program = reader.takeText(room: 200)
    }

    func write(to place: UnsafeMutableRawPointer) {
        var writer = BoxWriter(place, size: BoxLayout.headerSize)
        writer.put(BoxLayout.magic)
        writer.put(BoxLayout.version)
        writer.put(process)
        writer.put(started.inNanoseconds)
        writer.put(boot, room: 40)
        writer.put(version, room: 40)
        writer.put(program, room: 200)
        writer.seal()
    }
}

extension BoxContents.Sample {
    init(_ reader: inout BoxReader) {
        at = .nanoseconds(reader.take(Int64.self))
        wall = .nanoseconds(reader.take(Int64.self))
        usage = reader.takeBytes() ?? 0
        (available, limit) = (reader.takeBytes(), reader.takeBytes())
        (charged, volatile) = (reader.takeKibibytes(), reader.takeKibibytes())
        (resident, growth) = (reader.takeKibibytes(), reader.takeKibibytes())
        lazyFreed = reader.takeKibibytes()
        let kills = reader.take(UInt32.self)
        self.kills = kills == 0 ? nil : Int(kills) - 1
        level = PressureLevel(rawValue: reader.take(UInt8.self) & 3) ?? .normal
        let bits = reader.take(UInt8.self)
        observed = PressureLevel(rawValue: bits & 3) ?? .normal
        isDryRun = bits & 4 != 0
        evidence = PressureEvidence(rawValue: reader.take())
        _ = reader.take(UInt8.self)
        tasks = Int(reader.take(UInt32.self))
    }

    func write(to place: UnsafeMutableRawPointer, sequence: UInt32) {
        var writer = BoxWriter(place, size: BoxLayout.turns.size)
        writer.put(sequence)
        writer.put(at.inNanoseconds)
        writer.put(wall.inNanoseconds)
        writer.put(Int64(usage))
        writer.put(Int64(available ?? -1))
        writer.put(Int64(limit ?? -1))
        writer.put(kibibytes: charged)
        writer.put(kibibytes: volatile)
        writer.put(kibibytes: resident)
        writer.put(kibibytes: growth)
        writer.put(kibibytes: lazyFreed)
        writer.put(kills.map { UInt32(clamping: $0 + 1) } ?? 0)
        writer.put(level.rawValue)
        writer.put(observed.rawValue | (isDryRun ? 4 : 0))
        writer.put(evidence.rawValue)
        writer.put(UInt8(0))
        writer.put(UInt32(clamping: tasks))
        writer.seal()
    }
}

extension BoxContents.Report {
    init(_ reader: inout BoxReader) {
        at = .nanoseconds(reader.take(Int64.self))
        took = .nanoseconds(reader.take(Int64.self))
        severity = Int(reader.take(UInt8.self))
        outcome = Outcome(rawValue: reader.take(UInt8.self)) ?? .done
        _ = reader.take(UInt16.self)
        (asked, released) = (reader.takeKibibytes(), reader.takeKibibytes())
        (releasedVolatile, taken) = (reader.takeKibibytes(), reader.takeKibibytes())
        text = reader.takeText(room: BoxLayout.reportText)
    }

    /// Writes the report of an action. Allocates nothing: several names are not joined, the first stands for all.
    static func write(_ report: ActionReport, to place: UnsafeMutableRawPointer, sequence: UInt32) {
        var writer = BoxWriter(place, size: BoxLayout.reports.size)
        writer.put(sequence)
        writer.put(report.began.inNanoseconds)
        writer.put(report.took.inNanoseconds)
        writer.put(UInt8(clamping: report.action.severity))
        let text: String
        switch report.outcome {
        case .done: (text, _) = (report.cancelledRequest ?? "", writer.put(Outcome.done.rawValue))
        case .dryRun: (text, _) = ("", writer.put(Outcome.dryRun.rawValue))
        case .refused(let reason): (text, _) = (reason, writer.put(Outcome.refused.rawValue))
        case .overran(let names): (text, _) = (names.first ?? "", writer.put(Outcome.overran.rawValue))
        }
        writer.put(UInt16(0))
        writer.put(kibibytes: max(report.asked, report.cancelledBytes).bytes)
        writer.put(kibibytes: report.released.bytes)
        writer.put(kibibytes: report.releasedVolatile.bytes)
        writer.put(kibibytes: report.taken.bytes)
        writer.put(text, room: BoxLayout.reportText)
        writer.seal()
    }
}

extension BoxContents.Table {
    init(_ reader: inout BoxReader) {
        at = .nanoseconds(reader.take(Int64.self))
        let count = min(Int(reader.take(UInt32.self)), BoxLayout.rows)
        reader.skip(to: BoxLayout.rowSize)
        rows = (0..<count).map { _ in
            let bytes = reader.takeBytes() ?? 0,
                kind = Kind(rawValue: UInt8(truncatingIfNeeded: reader.take(UInt32.self)))
            return Row(name: reader.takeText(room: BoxLayout.holderName), bytes: bytes, kind: kind ?? .heap)
        }
    }
}

extension RecordedCensus {
    init(_ reader: inout BoxReader) {
        let at = Duration.nanoseconds(reader.take(Int64.self))
        let count = min(Int(reader.take(UInt32.self)), BoxLayout.types)
        reader.skip(to: BoxLayout.typeRowSize)
        let rows = (0..<count).map { _ in
            let bytes = reader.takeBytes() ?? 0, count = Int(reader.take(Int64.self))
            return Row(name: reader.takeText(room: BoxLayout.typeName), count: count, bytes: bytes)
        }
        self.init(at: at, rows: rows)
    }

    func write(to place: UnsafeMutableRawPointer, sequence: UInt32) {
        var writer = BoxWriter(place, size: BoxLayout.censuses.size)
        writer.put(sequence)
        writer.put(at.inNanoseconds)
        writer.put(UInt32(min(rows.count, BoxLayout.types)))
        writer.skip(to: BoxLayout.typeRowSize)
        for row in rows.prefix(BoxLayout.types) {
            writer.put(Int64(row.bytes))
            writer.put(Int64(row.count))
            writer.put(row.name, room: BoxLayout.typeName)
        }
        writer.seal()
    }
}
