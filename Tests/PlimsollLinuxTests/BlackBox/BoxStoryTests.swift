import Plimsoll
import Testing

@testable import PlimsollLinux

/// The story that a black box tells.
@Suite struct BoxStoryTests {
    private typealias Table = BoxContents.Table

    /// Returns five calm seconds, then 36 MiB a second for five seconds, with a release that was refused in the middle.
    private func burst(thumbnails: ByteCount = .zero) -> BoxContents {
        let calm = (0..<5).map { BoxContents.Sample.reading(at: Double($0), available: .mebibytes(184)) }
        let rise = (0...5).map {
            BoxContents.Sample.reading(
                at: 5 + Double($0), available: .mebibytes(184 - 36 * $0), growth: .mebibytes(36),
                level: $0 < 3 ? .normal : $0 < 4 ? .warning : .critical, tasks: $0)
        }
        let rows = { (bytes: ByteCount) in
            [
                Table.Row(name: "pages", bytes: 8 << 20, kind: .heap),
                Table.Row(name: "thumbnails", bytes: bytes.bytes, kind: .heap),
                Table.Row(name: "tiles", bytes: bytes.bytes * 9, kind: .volatile),
            ]
        }
        var release = BoxContents.Report(
            at: .seconds(8), took: .milliseconds(3), severity: 1, outcome: .done, asked: 64 << 20, released: 8 << 20,
            releasedVolatile: 2 << 20, taken: 1 << 20, text: "")
        let done = release
        (release.severity, release.outcome, release.text) = (5, .refused, "no supervisor")
        (release.asked, release.released, release.releasedVolatile, release.taken) = (0, 0, 0, 0)
        return .of(
            calm + rise, reports: [done, release, release],
            tables: [Table(at: .seconds(5), rows: rows(.zero)), Table(at: .seconds(10), rows: rows(thumbnails))])
    }

    @Test func `requests that grew are listed apart from purgeables, with advice`() {
        var contents = burst(thumbnails: .mebibytes(20))
        contents.tables[1].rows.append(.init(name: "POST /import", bytes: 120 << 20, kind: .request))
        let story = BoxStory(contents), lines = story.lines { _ in "" }
        #expect(story.growths.first == .init(name: "POST /import", bytes: 120 << 20, isRequest: true) && story.unregistered == 40 << 20)
        #expect(
            lines.contains("grew      requests \"POST /import\" by 120 MiB, \"thumbnails\" by 20 MiB, what is registered nowhere by 40 MiB"),
            "\(lines)")
        #expect(lines.contains { $0.hasPrefix("advice    requests \"POST /import\" grew: give them a limit, or the ladder a rung") })
    }

    @Test func `the last census is shown with its age`() {
        var contents = burst()
        #expect(!BoxStory(contents).lines { _ in "" }.contains { $0.hasPrefix("heap") })
        let names = ["Array<UInt8>", "Shop.Order", "task", "error"]
        contents.census = RecordedCensus(at: .seconds(7), rows: names.map { .init(name: $0, count: 4, bytes: 64 << 20) })
        #expect(
            BoxStory(contents).lines { _ in "" }.contains(
                "heap      counted 3 s before: 64 MiB in 4 of Array<UInt8>, 64 MiB in 4 of Shop.Order, 64 MiB in 4 of task"),
            "\(BoxStory(contents).lines { _ in "" })")
    }

    @Test func `a cancelled request is named, and does not count as a release`() {
        let cancelled = BoxContents.Report(
            at: .seconds(9), took: .zero, severity: PressureAction.cancelLargestRequest(above: .zero).severity, outcome: .done, asked: 140 << 20,
            released: 0, releasedVolatile: 0, taken: 0, text: "POST /import")
        var contents = burst()
        contents.reports.append(cancelled)
        let line = BoxStory(contents).lines { _ in "" }.first { $0.hasPrefix("released") }
        #expect(
            line?.hasSuffix(
                "in 1 action, which asked for 64 MiB at most; the kernel reclaimed 1 MiB of volatile memory; cancelled \"POST /import\", which held 140 MiB"
            ) == true, "\(line ?? "")")
        contents.reports = [cancelled]
        #expect(BoxStory(contents).lines { _ in "" }.contains("released  nothing; cancelled \"POST /import\", which held 140 MiB"))
    }

    @Test func `a burst is described in ten lines and a drawing`() {
        let lines = BoxStory(burst(thumbnails: .mebibytes(150))).lines { "at \(Int($0.inSeconds) - 1_700_000_000) s" }
        #expect(
            lines == [
                "shop, process 4711, Plimsoll 1.2.3, started at 0 s",
                "last      read at 10 s, after 10 s",
                "end       likely killed for memory: 4 MiB of 256 MiB were available at the last reading, at a growth of 36 MiB/s",
                "memory    252 MiB used of 256 MiB, 4 MiB available, resident 0 B, caches 0 B and 0 B volatile; level critical",
                "speed     unreclaimable memory rose by 180 MiB in 5 s (36 MiB/s)",
                "grew      \"thumbnails\" by 150 MiB, what is registered nowhere by 30 MiB",
                "released  8 MiB and 2 MiB volatile in 1 action, which asked for 64 MiB at most; the kernel reclaimed 1 MiB of volatile memory",
                "not done  suspend: no supervisor (2 times)",
                "tasks     5 ran at the end, 5 at most",
                "advice    \"thumbnails\" grew although memory was short: give it a limit, or let it release what it holds; a limit of 436 MiB has room for such a burst",
                "",
                "the last minute: unreclaimable memory of 256 MiB, and the level (_ normal, - warning, # critical)",
                String(repeating: " ", count: 49) + "▃▃▃▃▃▃▄▅▆▇█",
                String(repeating: " ", count: 49) + "________-##",
            ])
    }

    @Test func `growth that is not registered is named as such`() {
        let story = BoxStory(burst())
        #expect(story.growths.isEmpty && story.unregistered == 180 << 20)
        #expect(story.lines { _ in "" }.contains { $0.hasPrefix("advice    most of the growth is registered nowhere") })
    }

    @Test func `a rise of a minute is a leak, which a larger limit only delays`() throws {
        // The rise of the first two seconds is within a thirty-second of the whole.
        let samples = (0...62).map { BoxContents.Sample.reading(at: Double($0), available: .mebibytes(252 - 4 * $0)) }
        let story = BoxStory(.of(samples))
        #expect(story.rise == BoxStory.Rise(bytes: 244 << 20, duration: .seconds(61)) && story.verdict.kind == .outOfMemory)
        let advice = try #require(story.lines { _ in "" }.first { $0.hasPrefix("advice") })
        #expect(advice.hasSuffix("a limit twice as large would last 64 s longer"))
        #expect(BoxStory(.of(Array(samples.dropFirst(2)))).rise == .init(bytes: 236 << 20, duration: .seconds(59)))
        #expect(BoxStory(.of(Array(samples.dropFirst(2)))).rise?.isSlow == false)
    }

    @Test func `a rise begins after memory last stood nearly as high, and a release makes no new rise`() {
        func rise(_ available: [Int]) -> BoxStory.Rise? {
            BoxStory(.of(available.enumerated().map { .reading(at: Double($0), available: .mebibytes($1)) })).rise
        }
        #expect(rise([100, 200, 150, 100]) == .init(bytes: 100 << 20, duration: .seconds(2)))
        #expect(rise([200, 150, 174, 100]) == .init(bytes: 100 << 20, duration: .seconds(3)))
        #expect(rise([210, 125, 200, 100]) == .init(bytes: 110 << 20, duration: .seconds(3)))
        #expect(rise([210, 124, 200, 100]) == .init(bytes: 100 << 20, duration: .seconds(1)))
        // Between readings near the limit there is always some movement.
        #expect(rise([200, 10, 14, 11, 12, 10])?.bytes == 190 << 20)
        #expect(rise([100, 100]) == nil && rise([]) == nil && rise([50, 100]) == nil)
    }

    @Test func `a dry run, a missing limit and a run without a rise have separate advice`() {
        func advice(_ change: (inout BoxContents.Sample) -> Void) -> String? {
            var contents = burst()
            change(&contents.samples[contents.samples.count - 1])
            return BoxStory(contents).lines { _ in "" }.first { $0.hasPrefix("advice") }
        }
        #expect(advice { $0.isDryRun = true }?.contains("switch the dry run off") == true)
        #expect(advice { ($0.limit, $0.available) = (nil, nil) }?.contains("set a memory limit") == true)
        let full = BoxStory(.of([.reading(at: 0, available: .zero), .reading(at: 1, available: .zero)]))
        #expect(full.lines { _ in "" }.contains { $0.hasSuffix("raise the limit, or hold less") })
        let calm = BoxStory(.of([.reading(at: 0, available: .mebibytes(99)), .reading(at: 1, available: .mebibytes(98))]))
        #expect(calm.lines { _ in "" }.contains { $0.contains("look for a crash report") })
    }

    @Test func `an end in good order needs no advice, and a living process has no end yet`() {
        var contents = burst()
        contents.end = .shutdown
        #expect(!BoxStory(contents).lines { _ in "" }.contains { $0.hasPrefix("advice") })
        contents.end = nil
        let living = BoxStory(contents, isLiving: true).lines { _ in "" }
        #expect(living.contains("end       none yet: the process runs") && !living.contains { $0.hasPrefix("advice") })
    }

    @Test func `no numbers and times of a sealed record make the story trap`() throws {
        let memory = BoxMemory()
        BoxMemory.writer.write(to: memory.start)
        var table = BoxWriter(memory.start + BoxLayout.tables.place(1), size: BoxLayout.tables.size)
        table.put(UInt32(1))
        table.put(Int64.min)
        table.put(UInt32(3))
        table.skip(to: BoxLayout.rowSize)
        for bytes in [Int64.max, .max, .min] {
            table.put(bytes)
            table.put(UInt32(0))
            table.put("pages", room: BoxLayout.holderName)
        }
        table.seal()
        let times = [Duration.nanoseconds(Int64.min), .zero, .nanoseconds(Int64.max)]
        let usages = [-1, 0, Int.max]
        let limits: [(limit: Int, available: Int)] = [(-1, -1), (1, 0), (1, .max), (.max, 0), (.max, 1), (.max, .max)]
        var samples: [BoxContents.Sample] = []
        for at in times {
            for usage in usages {
                for (limit, available) in limits {
                    var sample = BoxContents.Sample.reading(at: 0, available: .zero)
                    (sample.at, sample.wall, sample.usage) = (at, at, usage)
                    (sample.limit, sample.available) = (limit, available)
                    samples.append(sample)
                }
            }
        }
        // Each reading is the last one once.
        for first in samples.indices {
            for (index, sample) in (samples[first...] + samples[..<first]).enumerated() {
                let sequence = UInt32(index + 1)
                sample.write(to: memory.start + BoxLayout.turns.place(sequence), sequence: sequence)
            }
            let contents = try memory.contents()
            #expect(contents.samples.count == samples.count)
            #expect(BoxStory(contents).lines { _ in "" }.count > 9)
        }
        // A rise of one byte in some 580 years.
        var slow = [BoxContents.Sample.reading(at: 0, available: ByteCount(1)), .reading(at: 0, available: .zero)]
        for index in slow.indices { slow[index].limit = 1 << 50 }
        slow[0].at = times[0]
        slow[1].at = times[2]
        let advice = BoxStory(.of(slow)).lines { _ in "" }.first { $0.hasPrefix("advice") }
        #expect(advice?.contains("a limit twice as large would last") == true, "\(advice ?? "")")
    }

    @Test func `a record without a reading names the process that wrote the record`() {
        #expect(
            BoxStory(.of([])).lines { _ in "then" } == [
                "shop, process 4711, Plimsoll 1.2.3, started then", "end       ended without notice before its first reading",
            ])
    }
}
