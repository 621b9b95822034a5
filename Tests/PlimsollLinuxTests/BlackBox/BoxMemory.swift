import Plimsoll

@testable import PlimsollLinux

/// The memory of a black box, without a file.
final class BoxMemory {
    let start = UnsafeMutableRawPointer.allocate(byteCount: BoxLayout.size, alignment: 8)
    static let writer = BoxContents.Writer(
        process: 4711, program: "shop", version: "1.2.3", boot: "2f0d", started: .seconds(1_700_000_000))

    init() { start.initializeMemory(as: UInt8.self, repeating: 0, count: BoxLayout.size) }
    deinit { start.deallocate() }

    var bytes: [UInt8] { Array(UnsafeRawBufferPointer(start: start, count: BoxLayout.size)) }
    func contents() throws -> BoxContents { try BoxContents(bytes) }
}

extension BoxContents.Sample {
    /// A reading within 256 MiB.
    static func reading(
        at seconds: Double, available: ByteCount, charged: ByteCount = .zero, growth: ByteCount = .zero,
        level: PressureLevel = .normal, kills: Int? = 0, tasks: Int = 0
    ) -> Self {
        Self(
            at: .seconds(seconds), wall: .seconds(1_700_000_000 + seconds), usage: (.mebibytes(256) - available).bytes,
            available: available.bytes, limit: ByteCount.mebibytes(256).bytes, charged: charged.bytes, volatile: 0,
            resident: 0, growth: growth.bytes, lazyFreed: 0, kills: kills, level: level, observed: level, evidence: [],
            isDryRun: false, tasks: tasks)
    }
}

extension BoxContents {
    /// A record with these readings.
    static func of(_ samples: [Sample], reports: [Report] = [], tables: [Table] = []) -> BoxContents {
        BoxContents(
            writer: BoxMemory.writer, end: nil, killsAtNextStart: nil, samples: samples, reports: reports, tables: tables)
    }
}
