import Plimsoll
import Synchronization

/// Writes the turns of a pressure loop into the memory of a black box.
///
/// A turn costs two or three checksums of 80 to 128 bytes, and at most four times a second one of 2 KiB. No system call,
/// no lock of its own, no allocation.
///
/// Unchecked: only the thread of the pressure loop records turns and uses the variables. A census and `ended` write memory
/// that turns never write; censuses exclude each other by a lock. Checksums make the order in which stores reach memory irrelevant, on arm64 too.
final class BoxRecorder: TurnRecorder, @unchecked Sendable {
    /// Intervals between two tables that are kept, and between two latest ones while memory is calm, and while it
    /// grows or is short.
    static let tableInterval = Duration.seconds(5)
    static let latestInterval = (calm: Duration.seconds(1), growing: Duration.milliseconds(250))

    /// Requests that hold no more than this are no part of a table.
    private static let leastRequest = ByteCount.mebibytes(1)

    private let memory: UnsafeMutableRawPointer
    /// Keeps the memory mapped.
    private let owner: AnyObject
    private var turns: UInt32 = 0, seconds: UInt32 = 0, reported: UInt32 = 0
    private var tables: UInt32 = 0, latest: UInt32 = 0
    /// Number of reports of the manager that are recorded.
    private var reports = 0
    /// The reading of the present second that left least memory available.
    private var worst: BoxContents.Sample?
    private var secondBegan: Duration?
    private var lastTable: Duration?, lastLatest: Duration?
    private var tasks = 0
    /// Number of censuses.
    private let censuses = Mutex<UInt32>(0)
    /// The purgeables that hold most, for the next table. Room for all rows is reserved once.
    private var rows: [BoxContents.Table.Row] = []

    /// Creates a recorder in zeroed memory of `BoxLayout.size` bytes, and writes the header.
    init(_ memory: UnsafeMutableRawPointer, of owner: AnyObject, writer: BoxContents.Writer) {
        (self.memory, self.owner) = (memory, owner)
        rows.reserveCapacity(BoxLayout.rows)
        writer.write(to: memory)
    }

    func record(_ turn: RecordedTurn) {
        let now = turn.reading.at
        if secondBegan.map({ now - $0 >= .seconds(1) }) ?? true {
            if let worst {
                seconds &+= 1
                worst.write(to: memory + BoxLayout.seconds.place(seconds), sequence: seconds)
            }
            (secondBegan, worst) = (now, nil)
            tasks = turn.runningTasks
        }
        let sample = BoxContents.Sample(turn, tasks: tasks)
        if worst.map({ sample.pinned > $0.pinned }) ?? true { worst = sample }
        turns &+= 1
        sample.write(to: memory + BoxLayout.turns.place(turns), sequence: turns)
        turn.eachReport(after: &reports) { report in
            reported &+= 1
            BoxContents.Report.write(report, to: memory + BoxLayout.reports.place(reported), sequence: reported)
        }
        let isGrowing = turn.assessment.growth > .zero || turn.assessment.observed > .normal
        if lastTable.map({ now - $0 >= Self.tableInterval }) ?? true {
            (lastTable, tables) = (now, tables &+ 1)
            writeTable(turn, BoxLayout.tables, sequence: tables)
        } else if lastLatest.map({
            now - $0 >= (isGrowing ? Self.latestInterval.growing : Self.latestInterval.calm)
        }) ?? true {
            (lastLatest, latest) = (now, latest &+ 1)
            writeTable(turn, BoxLayout.latest, sequence: latest)
        }
    }

    func record(_ census: RecordedCensus) {
        censuses.withLock { sequence in
            sequence &+= 1
            census.write(to: memory + BoxLayout.censuses.place(sequence), sequence: sequence)
        }
    }

    func ended(_ end: RecordedEnd) {
        memory.storeBytes(of: UInt32(end.rawValue).littleEndian, toByteOffset: BoxLayout.state, as: UInt32.self)
    }

    private func writeTable(_ turn: RecordedTurn, _ ring: BoxLayout.Ring, sequence: UInt32) {
        rows.removeAll(keepingCapacity: true)
        turn.eachHolder { name, bytes, isVolatile in
            add(BoxContents.Table.Row(name: name, bytes: bytes, kind: isVolatile ? .volatile : .heap))
        }
        turn.eachRequest(above: Self.leastRequest) { name, bytes in
            add(BoxContents.Table.Row(name: name, bytes: bytes, kind: .request))
        }
        var writer = BoxWriter(memory + ring.place(sequence), size: ring.size)
        writer.put(sequence)
        writer.put(turn.reading.at.inNanoseconds)
        writer.put(UInt32(rows.count))
        writer.skip(to: BoxLayout.rowSize)
        var index = 0
        while index < rows.count {
            writer.put(Int64(rows[index].bytes))
            writer.put(UInt32(rows[index].kind.rawValue))
            writer.put(rows[index].name, room: BoxLayout.holderName)
            index += 1
        }
        writer.seal()
    }
}

extension BoxRecorder {
    /// Adds a row to those that hold most. Requests of one name share a row.
    private func add(_ row: BoxContents.Table.Row) {
        // By index: without optimization, an iterator allocates.
        var least = 0, index = 0
        while index < rows.count {
            if row.kind == .request, rows[index].kind == .request, rows[index].name == row.name {
                rows[index].bytes += row.bytes
                return
            }
            if rows[index].bytes < rows[least].bytes { least = index }
            index += 1
        }
        if rows.count < BoxLayout.rows { return rows.append(row) }
        if rows[least].bytes < row.bytes { rows[least] = row }
    }
}

extension BoxContents.Sample {
    init(_ turn: RecordedTurn, tasks: Int) {
        let (reading, assessment) = (turn.reading, turn.assessment)
        self.init(
            at: reading.at, wall: turn.wall, usage: reading.usage.bytes, available: reading.available?.bytes,
            limit: reading.limit?.bytes, charged: reading.charged.bytes, volatile: reading.volatile.bytes,
            resident: reading.resident.bytes, growth: assessment.growth.bytes,
            lazyFreed: reading.lazyFreed?.bytes ?? 0, kills: reading.ownKills, level: assessment.level,
            observed: assessment.observed, evidence: assessment.evidence, isDryRun: turn.isDryRun, tasks: tasks)
    }
}
