import Plimsoll

/// Prints the demo as it happens: a line a second and a line for each change. Purges and drops are counted, not
/// listed.
struct Narrative {
    struct Item {
        var at: Duration
        var side: String
        var text: String
        var purge: DemoRecord.Purge?
        var drop: DemoRecord.Drop?
    }

    let limit: ByteCount
    private var nextRow = Duration.zero
    private var purges: [DemoRecord.Purge] = []
    private var taken = ByteCount.zero

    private static let barWidth = 24

    init(limit: ByteCount) { self.limit = limit }

    mutating func tell(_ items: [Item], _ without: DemoRecord, _ with: DemoRecord, at now: Duration) {
        for item in items {
            if let purge = item.purge { purges.append(purge) }
            if let drop = item.drop { taken = taken + drop.taken }
            if !item.text.isEmpty { Output.line(stamp(item.at) + Text.left(item.side, 7) + "  " + item.text) }
        }
        guard now >= nextRow else { return }
        nextRow = .seconds(now.inSeconds.rounded(.down) + 1)
        var row = stamp(now) + [without, with].map(column).joined(separator: "   ") + "  \(with.served) served"
        if let sample = with.samples.last {
            row += ", \(Text.mebibytes(sample.fixed)) MiB fixed, working set \(Text.mebibytes(sample.workingSet))"
        }
        if taken > .zero {
            row += ", the kernel took \(Text.mebibytes(taken)) MiB"
            taken = .zero
        }
        if !purges.isEmpty {
            let back = purges.reduce(ByteCount.zero) { $0 + max(.zero, $1.fall) }
            let longest = purges.map(\.took).max() ?? .zero
            row +=
                ", \(Text.mebibytes(back)) MiB given back in \(purges.count) (longest \(Text.number(longest.milliseconds)) ms)"
            purges = []
        }
        Output.line(row)
    }

    private func stamp(_ at: Duration) -> String { Text.right(Text.number(at.inSeconds, decimals: 1), 6) + " s  " }

    private func column(_ record: DemoRecord) -> String {
        let usage = record.fate == .running ? record.samples.last?.usage ?? .zero : .zero
        let bar = Bar.draw(Double(usage.bytes) / Double(limit.bytes), width: Self.barWidth, marks: [(0.8, "|")])
        let text = record.fate == .running ? Text.right(Text.mebibytes(usage), 5) + " MiB" : Text.right("gone", 9)
        return "\(record.name) \(bar)\(text)"
    }
}
