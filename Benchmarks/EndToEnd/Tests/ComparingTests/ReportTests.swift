import Foundation
import Testing

@testable import Comparing

@Suite struct ReportTests {
    private func run(
        _ variant: String, _ good: Int, run: Int = 1, load: String = "burst-1", killed: Double? = nil, refused: Int = 0,
        held: Double? = nil
    ) -> RunRecord {
        var result = LoadResult(seconds: 10), picture = RouteResult()
        picture.due = 1000
        picture.good = good
        picture.refused = refused
        picture.p99 = 50
        result.routes = ["picture": picture]
        var record = RunRecord(
            limitBytes: 256 << 20, load: load, variant: variant, run: run, seed: UInt64(run), rate: 100, seconds: 10,
            warmUp: 0)
        record.result = result
        record.goneAfterSeconds = killed
        if let held {
            record.server = ServerSummary()
            record.server?.heldSeconds = held
        }
        return record
    }

    @Test func `quantiles use the nearest rank, and a median is the middle value`() {
        #expect(Statistics.quantile(0.5, of: [1, 2, 3, 4]) == 2)
        #expect(Statistics.quantile(0.99, of: (1...200).map { Double($0) }) == 198)
        #expect(Statistics.quantile(0.5, of: []) == nil)
        #expect(Statistics.median([5, 1, 3]) == 3)
        #expect(Statistics.median([4, 1]) == 2.5)
        #expect(Statistics.median([]) == nil)
    }

    @Test func `the best tuned variant is one that survived`() {
        let records = [
            run("fixed-40", 900), run("fixed-40", 300, run: 2, killed: 4), run("fixed-25", 600), run("nscache-25", 500),
            run("plimsoll", 660),
        ]
        #expect(Cell.cells(records)[0].bestTuned() == "fixed-25")
        let figures = Report(records).figures
        #expect(figures.contains("figure e2e.goodput.plimsoll-to-best-tuned 1.100 times"))
        #expect(figures.contains("figure e2e.goodput.plimsoll-to-fixed-40 1.100 times"))
        #expect(figures.contains("figure e2e.kills.plimsoll 0 of_1"))
        #expect(figures.contains("figure e2e.p99.plimsoll-to-best-tuned 1.000 times"))
    }

    @Test func `with one number for all loads, a fatal load counts at the goodput served before the kill`() {
        let figures = Report([
            run("fixed-40", 800, load: "calm"), run("plimsoll", 800, load: "calm"), run("fixed-40", 900, load: "leak"),
            run("plimsoll", 900, load: "leak"), run("fixed-40", 100, killed: 1), run("plimsoll", 1000),
        ]).figures
        #expect(figures.contains("figure e2e.goodput.plimsoll-to-fixed-40 1.500 times"))
        #expect(figures.contains("figure e2e.goodput.plimsoll-to-fixed-40.median 1.000 times"))
    }

    @Test func `a number is safe if the variant lived through all loads at that limit`() {
        let records = [
            run("fixed-40", 800, load: "calm"), run("fixed-25", 400, load: "calm"), run("plimsoll", 800, load: "calm"),
            run("fixed-40", 100, killed: 1), run("fixed-25", 400), run("plimsoll", 400),
        ]
        let figures = Report(records).figures
        #expect(figures.contains("figure e2e.goodput.plimsoll-to-best-tuned 1.000 times"))
        #expect(figures.contains("figure e2e.goodput.plimsoll-to-safe-tuned 1.500 times"))
    }

    @Test func `refusals are a share of the requests due, and the held time is the longest`() {
        let figures = Report([
            run("fixed-25", 900), run("plimsoll", 900, refused: 20, held: 1), run("plimsoll", 900, run: 2, held: 3),
        ]).figures
        #expect(figures.contains("figure e2e.refused.plimsoll 1.00 %"))
        #expect(figures.contains("figure e2e.held-after-burst 3.0 s"))
        #expect(figures.contains("figure e2e.held-after-burst.median 2.0 s"))
    }

    @Test func `nothing is compared where no tuned variant lived`() {
        let figures = Report([run("fixed-25", 100, killed: 1), run("plimsoll", 900)]).figures
        #expect(!figures.contains { $0.contains("best-tuned") })
        #expect(figures.contains("figure e2e.kills.plimsoll 0 of_1"))
    }

    @Test func `a table has a row for each variant, numbers by size`() {
        let lines = Report([run("fixed-15", 100), run("fixed-5", 100), run("plimsoll", 500, killed: 6)]).tables.split(
            separator: "\n")
        #expect(lines[0] == "### 256 MiB, burst-1")
        #expect(lines[3].hasPrefix("| fixed-5 "))
        #expect(lines[4].hasPrefix("| fixed-15 "))
        #expect(lines[5].hasPrefix("| plimsoll | 50, 50 |") && lines[5].contains("| 1 of 1, after 6 s |"))
    }

    @Test func `a panel shows the best tuned variant, Plimsoll and the common default, with their kills`() {
        let records = [
            run("fixed-15", 600), run("fixed-25", 700), run("fixed-40", 300, killed: 4), run("plimsoll", 800),
            run("none", 100, killed: 2),
            run("fixed-15", 10, load: "calm"), run("fixed-15", 10, load: "leak", killed: 1),
            run("plimsoll", 20, load: "leak"),
        ]
        let panels = Report(records).panels
        #expect(panels.map(\.title) == ["256 MiB, burst-1", "256 MiB, leak"])
        #expect(panels.last?.rows.map(\.label) == ["none of 1 lived", "2/s"])
        #expect(
            panels.first?.rows.map(\.name) == [
                "best by hand: fixed-25", "Plimsoll, nothing set", "fixed at 40 %", "no bound",
            ])
        #expect(panels.first?.rows.map(\.label) == ["70/s", "80/s", "30/s, killed 1 of 1", "10/s, killed 1 of 1"])
        #expect(panels.first?.rows.map(\.isOurs) == [false, true, false, false])
    }

    @Test func `variants take turns, and runs already made are left out`() {
        let comparison = Comparison(
            limits: [1], loads: ["calm", "leak"], variants: ["a", "b"], runs: 2, seconds: 5, warmUp: 1, rate: 10,
            seed: 1)
        let plans = comparison.plans
        #expect(
            plans.map { "\($0.run) \($0.load) \($0.variant)" } == [
                "1 calm a", "1 calm b", "1 leak a", "1 leak b", "2 calm b", "2 calm a", "2 leak b", "2 leak a",
            ])
        #expect(comparison.plans(after: Array(plans[..<3])).count == 5)
    }

    @Test func `a truncated line loses one run`() throws {
        let path = FileManager.default.temporaryDirectory.appendingPathComponent(
            "e2e-test-\(UInt64.random(in: 0 ... .max)).jsonl"
        ).path
        defer { try? FileManager.default.removeItem(atPath: path) }
        let file = RecordFile(path)
        #expect(try file.records().isEmpty)
        try file.append(run("a", 1))
        let handle = try FileHandle(forWritingTo: URL(fileURLWithPath: path))
        try handle.seekToEnd()
        try handle.write(contentsOf: Data("{\"limitBytes\":1".utf8))
        try handle.close()
        try file.append(run("b", 2))
        #expect(try file.records().map(\.variant) == ["a", "b"])
    }

    @Test func `runs beside busy neighbours are left out on request`() throws {
        let path = FileManager.default.temporaryDirectory.appendingPathComponent(
            "e2e-test-\(UInt64.random(in: 0 ... .max)).jsonl"
        ).path
        defer { try? FileManager.default.removeItem(atPath: path) }
        let file = RecordFile(path)
        for neighbours in [0.8, 0.1] {
            var record = run("a", 1)
            record.neighbours = neighbours
            try file.append(record)
        }
        #expect(try file.records(mostNeighbours: 0.3).map(\.neighbours) == [0.1])
        #expect(try file.records().count == 2)
    }
}
