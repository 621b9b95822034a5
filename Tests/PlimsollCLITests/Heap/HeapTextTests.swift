import Plimsoll
import Testing

@testable import PlimsollCLI
@testable import PlimsollHeap
@testable import PlimsollService

/// Text of `plimsoll heap`.
@Suite struct HeapTextTests {
    private let row = HeapCensus.Row(name: "Shop.Order", count: 12_000, bytes: 576_000, ownedBlocks: 3, ownedBytes: 30_000)
    private let array = HeapCensus.Row(
        name: "_ContiguousArrayStorage<Shop.\u{1B}Order>", count: 1, bytes: 262_144, usedBytes: 96_000, capacityBytes: 262_112,
        ownedBlocks: 0, ownedBytes: 0)

    private func census(_ way: HeapCensus.Way) -> HeapCensus {
        HeapCensus(
            way: way, rows: [row, array], namedBytes: 838_144, ownedBytes: 30_000, unnamedBytes: 120_000, freeBytes: 4096,
            lostBytes: 0, processorSeconds: 0.012)
    }

    @Test func `the share that is named comes first, then the types`() {
        #expect(
            HeapText.text(HeapStatus(census: census(.chunks), types: 2, declaredBytes: 700_000)) == """
                87.9 % of 965 KiB in use are named or owned: 819 KiB named, 29 KiB owned, 117 KiB of C and others; 4 KiB free; \
                by malloc's chunks, 12 ms of processor time
                registered caches and purgeables declare 684 KiB
                  bytes   owned  count  filled  type
                563 KiB  29 KiB  12000       -  Shop.Order
                256 KiB       -      1  36.6 %  _ContiguousArrayStorage<Shop.\u{FFFD}Order>
                """)
    }

    @Test func `caches are shown with the bytes that a sample of their entries holds`() {
        var status = HeapStatus(census: census(.chunks), types: 2, declaredBytes: 700_000)
        status.costs = [
            CostCheck(name: "pictures", entries: 64, declaredBytes: 640_000, foundBytes: 660_000),
            CostCheck(name: "sessions", entries: 64, declaredBytes: 64_000, foundBytes: 630_000),
            CostCheck(name: "a\u{1B}b", entries: 4, declaredBytes: 64_000, foundBytes: 1000),
        ]
        #expect(
            HeapText.text(status).contains(
                """
                registered caches and purgeables declare 684 KiB
                  pictures: 64 entries hold 645 KiB, 1.03 times the 625 KiB that are declared for them
                  sessions: 64 entries hold 615 KiB, 9.84 times the 63 KiB that are declared for them; `cost` counts too little
                  a\u{FFFD}b: 4 entries hold 1000 B, 0.02 times the 63 KiB that are declared for them; `cost` counts too much

                """.dropLast()))
    }

    @Test func `impossible numbers of a service are shown, and end no command`() {
        var census = census(.chunks), shrunk = row
        (census.namedBytes, census.ownedBytes, census.unnamedBytes) = (.max, 1, .max)
        shrunk.bytes = .min
        let status = HeapStatus(census: census, types: 2, declaredBytes: .max, growth: [shrunk], growthSeconds: 1)
        let text = HeapText.text(status)
        #expect(text.contains("% of 8 EiB in use are named or owned") && text.contains("-8 EiB"), "\(text)")
    }

    @Test func `the text shows growth, and the types left out`() {
        var grown = row, shrunk = array
        (grown.count, shrunk.usedBytes) = (7, -4096)
        var status = HeapStatus(census: census(.scan), types: 90, declaredBytes: 0, growth: [grown, shrunk], growthSeconds: 61)
        let text = HeapText.text(status)
        #expect(text.contains("by a scan, which sees no blocks without a header") && text.contains("\nand 88 types more\n"))
        #expect(text.contains("grown in the 61 s since the census before\n") && text.contains("29 KiB      7"))
        status.growth = []
        #expect(HeapText.text(status).hasSuffix("grown in the 61 s since the census before: nothing"))
    }
}
