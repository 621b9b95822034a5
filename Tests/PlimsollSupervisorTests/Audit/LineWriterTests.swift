import Glibc
import Plimsoll
import PlimsollLifecycle
import Synchronization
import TestSupport
import Testing

@testable import PlimsollSupervisor

/// Logs and journals that are not read, or can't be written.
@Suite(.serialized) struct LineWriterTests {
    private let directory = Fixture.Directory()

    private func widePipe() -> (read: Int32, write: Int32) {
        var ends: [Int32] = [-1, -1]
        #expect(pipe(&ends) == 0)
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        return (ends[0], ends[1])
    }

    /// Returns both ends of a pipe with the smallest capacity.
    private func narrowPipe() -> (read: Int32, write: Int32) {
        let ends = widePipe()
        // F_SETPIPE_SZ, which the overlay lacks.
        _ = fcntl(ends.write, 1031, 4096)
        return ends
    }

    private func lines(_ text: [UInt8]) -> [String] { String(decoding: text, as: UTF8.self).split(separator: "\n").map(String.init) }

    /// Returns all bytes of `file` until the end.
    private func all(_ file: Int32) -> [UInt8] {
        var text: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = read(file, &chunk, chunk.count)
            guard count > 0 else { return text }
            text += chunk[..<count]
        }
    }

    @Test func `lines into an unread pipe delay no writer, and dropped lines are counted once the pipe is read`() async throws {
        let (reader, writer) = narrowPipe(), total = 20_000
        let dropped = Mutex(0)
        let log = try #require(
            LineWriter(writer, closesFile: true, capacity: 100_000) { trouble in
                guard case .dropped(let count) = trouble else { return nil }
                dropped.withLock { $0 += count }
                return Array("lost \(count)\n".utf8)
            })
        #expect(await ends("writing") { for number in 0..<total { log.write(Array("line \(number)\n".utf8)) } })
        let text = Mutex<[UInt8]>([])
        let isStarted = Thread.start("reader") { [self] in
            let read = all(reader)
            text.withLock { $0 = read }
        }
        #expect(isStarted)
        #expect(await ends("finishing") { log.finish(within: .seconds(60)) })
        #expect(await until("all is read") { text.withLock { !$0.isEmpty } })
        close(reader)
        let read = text.withLock { lines($0) }
        let lost = dropped.withLock { $0 }
        // A late thread reports the loss in more than one line: then some lines find room again before the pipe is
        // full.
        let reported = read.filter { $0.hasPrefix("lost ") }.compactMap { Int($0.dropFirst(5)) }
        #expect(lost > 0 && reported.reduce(0, +) == lost, "\(reported)")
        let kept = read.filter { $0.hasPrefix("line ") }.compactMap { Int($0.dropFirst(5)) }
        #expect(kept.count + lost == total && zip(kept, kept.dropFirst()).allSatisfy { $0 < $1 }, "\(kept.count) + \(lost)")
        #expect(read.count == kept.count + reported.count)
    }

    @Test func `the end waits for a reader up to the limit, and no longer`() async throws {
        let (reader, writer) = narrowPipe()
        let log = try #require(LineWriter(writer, closesFile: true))
        for number in 0..<5000 { log.write(Array("line \(number)\n".utf8)) }
        let isFlushed = Mutex<Bool?>(nil)
        let hasEnded = await ends("finishing") {
            let result = log.finish(within: .milliseconds(50))
            isFlushed.withLock { $0 = result }
        }
        #expect(hasEnded && isFlushed.withLock { $0 } == false)
        close(reader)
    }

    @Test func `all lines are written before the end, and later lines are not`() async throws {
        // A pipe of one page takes one line until it is read.
        let (reader, writer) = widePipe()
        let log = try #require(LineWriter(writer, closesFile: true))
        for number in 0..<5 { log.write(Array("line \(number)\n".utf8)) }
        #expect(log.finish(within: .seconds(60)))
        log.write(Array("late\n".utf8))
        #expect(lines(all(reader)) == (0..<5).map { "line \($0)" })
        close(reader)
    }

    @Test func `a file that takes no bytes is reported once`() async throws {
        let file = open("/dev/full", O_WRONLY | O_CLOEXEC)
        let reported = Mutex<[LineWriter.Trouble]>([])
        let log = try #require(
            LineWriter(file, closesFile: true) { trouble in
                reported.withLock { $0.append(trouble) }
                return nil
            })
        for _ in 0..<100 { log.write(Array("x\n".utf8)) }
        log.finish(within: .seconds(60))
        #expect(reported.withLock { $0 } == [.failed(ENOSPC)])
    }

    @Test func `a record after a former run's torn line gets a separate line`() throws {
        let path = "\(directory.path)/journal"
        defer { unlink(path) }
        let file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
        #expect(write(file, "whole\n{\"v\":1,\"at", 16) == 16)
        close(file)
        let decision = Decision(at: .seconds(1), unit: "web", action: .suspend, reason: "why")
        let record = AuditRecord(decision, level: .warning, shortfall: .zero)
        for _ in 0..<2 {
            let journal = try Journal(path)
            journal.write(record)
            journal.finish(within: .seconds(60))
        }
        let text = try lines(GroupText.read(path).get())
        #expect(text.count == 4 && text[1] == "{\"v\":1,\"at" && text[2] == record.line && text[3] == record.line, "\(text)")
    }

    @Test func `a FIFO without a reader is refused with the remedy`() throws {
        let path = "\(directory.path)/fifo"
        #expect(mkfifo(path, 0o600) == 0)
        defer { unlink(path) }
        let error = #expect(throws: SupervisorError.self) { try Journal(path) }
        #expect("\(error!)".contains("a FIFO needs its reader first"))
    }

    // MARK: Reported lines

    @Test func `lines of a kind are reported a few times, and then only counted`() {
        var pacer = ComplaintPacer()
        func admits(_ number: Int, _ unit: String = "web", _ text: String = "is refused", at now: Duration) -> Bool {
            pacer.admits("process \(number) \(text)", of: unit, at: now)
        }
        func overdue(at now: Duration, isOver: Bool = false) -> [String] { pacer.overdue(at: now, isOver: isOver) }
        #expect((0..<1000).count { admits($0, at: .seconds(1)) } == ComplaintPacer.burst)
        #expect(admits(1, "other", at: .seconds(1)) && admits(1, "web", "is another kind", at: .seconds(1)))
        #expect(pacer.nextDue == .seconds(31) && overdue(at: .seconds(30)).isEmpty)
        #expect(overdue(at: .seconds(31)) == ["web: withheld 995 more lines like this: process 999 is refused"])
        #expect(pacer.nextDue == nil && admits(0, at: .seconds(32)))
        // Lines withheld at the end are reported then.
        for number in 0..<10 { _ = admits(number, at: .seconds(33)) }
        #expect(overdue(at: .seconds(34), isOver: true) == ["web: withheld 6 more lines like this: process 9 is refused"])
    }

    @Test func `the limiter remembers few kinds of line among many`() {
        var pacer = ComplaintPacer()
        for number in 0..<10_000 { _ = pacer.admits("kind \(String(repeating: "x", count: number % 150))", of: "unit \(number)", at: .zero) }
        let isAdmitted = pacer.admits("kind", of: "unit 20000", at: .zero), lines = pacer.overdue(at: .zero, isOver: true)
        #expect(!isAdmitted && lines.count == 1)
    }
}
