import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// The decision at the begin of a launch, from the record of the previous run.
@Suite struct LaunchRecordTests {
    @Test func `a launch counts the failed ones before, and starts clean from the limit on`() {
        typealias Row = (previous: LaunchRecord?, limit: Int, failures: UInt32, run: PreviousRun, reason: String?)
        let rows: [Row] = [
            (nil, 2, 0, .none, nil),
            (LaunchRecord(phase: .ended, failures: 5), 2, 0, .clean, nil),
            (LaunchRecord(phase: .running, failures: 5, isClean: true), 2, 0, .crashed, nil),
            (LaunchRecord(phase: .launching), 2, 1, .failedLaunch, nil),
            (LaunchRecord(phase: .launching), 1, 1, .failedLaunch, "the last launch did not come up"),
            (LaunchRecord(phase: .launching), 0, 1, .failedLaunch, "the last launch did not come up"),
            (LaunchRecord(phase: .launching, failures: 1), 2, 2, .failedLaunch, "the last 2 launches did not come up"),
            (LaunchRecord(phase: .launching, failures: 1), 3, 2, .failedLaunch, nil),
        ]
        for row in rows {
            let begin = LaunchRecord.begin(after: row.previous, isMarked: false, limit: row.limit)
            #expect(begin.record == LaunchRecord(phase: .launching, failures: row.failures), "\(row)")
            #expect(begin.previousRun == row.run && begin.cleanStartReason == row.reason, "\(row)")
        }
        let most = LaunchRecord.begin(after: LaunchRecord(phase: .launching, failures: .max), isMarked: false, limit: 2)
        #expect(most.record.failures == .max && most.cleanStartReason != nil)
    }

    @Test func `a run ended by an operator makes launches clean until one has come up`() {
        let failed = LaunchRecord(phase: .launching, failures: 3), marked = LaunchRecord.begin(after: failed, isMarked: true, limit: 9)
        #expect(marked.previousRun == .killedByOperator && marked.record == LaunchRecord(phase: .launching, failures: 4, isClean: true))
        #expect(marked.cleanStartReason != nil)
        let next = LaunchRecord.begin(after: marked.record, isMarked: false, limit: 9)
        #expect(next.previousRun == .failedLaunch && next.record == LaunchRecord(phase: .launching, failures: 5, isClean: true))
        #expect(next.cleanStartReason?.contains("operator") == true)
        var up = next.record
        up.phase = .running
        let later = LaunchRecord.begin(after: up, isMarked: false, limit: 9)
        #expect(later.previousRun == .crashed && later.record == LaunchRecord(phase: .launching) && later.cleanStartReason == nil)
    }

    @Test func `only the eight bytes of this version are a record`() {
        let record = LaunchRecord(phase: .running, failures: 0x0403_0201, isClean: true)
        #expect(record.bytes == [1, 1, 1, 0, 1, 2, 3, 4] && LaunchRecord(record.bytes) == record)
        #expect(LaunchRecord([1, 2, 0, 0, 0, 0, 0, 0]) == LaunchRecord(phase: .ended))
        for bytes in [[], [1, 1, 1, 0, 1, 2, 3], [1, 1, 1, 0, 1, 2, 3, 4, 0], [0, 1, 1, 0, 1, 2, 3, 4], [1, 1, 2, 0, 1, 2, 3, 4]] as [[UInt8]] {
            #expect(LaunchRecord(bytes) == nil, "\(bytes)")
        }
    }
}
