import Plimsoll
import PlimsollDemos
import PlimsollHeap
import PlimsollService

/// Text of `plimsoll heap`.
enum HeapText {
    static func text(_ status: HeapStatus) -> String {
        let declared = "registered caches and purgeables declare \(ByteCount(status.declaredBytes))"
        let books = [declared] + (status.costs ?? []).map(line)
        var parts = [text(status.census, types: status.types, books.joined(separator: "\n"))]
        if let growth = status.growth, let seconds = status.growthSeconds {
            parts.append("")
            let nothing = growth.isEmpty ? ": nothing" : ""
            parts.append("grown in the \(AdminText.age(seconds)) since the census before\(nothing)")
            if !growth.isEmpty { parts.append(table(growth.map { row($0, bytes: signed) })) }
        }
        return parts.joined(separator: "\n")
    }

    /// The text of a census, of whose rows only the first `census.rows` of `types` are listed.
    static func text(_ census: HeapCensus, types: Int, _ declared: String? = nil) -> String {
        let rows = table(census.rows.map { row($0, bytes: { ByteCount($0).description }) })
        let more = types > census.rows.count ? "and \(types - census.rows.count) types more" : nil
        return [head(census), declared, rows, more].compactMap { $0 }.joined(separator: "\n")
    }

    /// Returns `  pictures: 64 entries hold 3.1 MiB, 9.8 times the 324 KiB that are declared for them`.
    private static func line(_ check: CostCheck) -> String {
        let factor = Text.number(check.factor, decimals: 2), declared = ByteCount(check.declaredBytes)
        let advice = check.isFar ? "; `cost` counts too \(check.factor > 1 ? "little" : "much")" : ""
        return """
              \(printable(check.name)): \(check.entries) entries hold \(ByteCount(check.foundBytes)), \(factor) times \
            the \(declared) that are declared for them\(advice)
            """
    }

    /// The share that has a name comes first: the rest of the census is about that share.
    private static func head(_ census: HeapCensus) -> String {
        let way =
            switch census.way {
            case .chunks: "by malloc's chunks"
            case .pages: "by jemalloc's pages"
            case .scan: "by a scan, which sees no blocks without a header"
            }
        let lost = census.lostBytes > 0 ? ", \(ByteCount(census.lostBytes)) skipped" : ""
        return """
            \(Text.number(census.coverage * 100)) % of \(ByteCount(census.usedBytes)) in use are named or owned: \
            \(ByteCount(census.namedBytes)) named, \(ByteCount(census.ownedBytes)) owned, \
            \(ByteCount(census.unnamedBytes)) of C and others; \(ByteCount(census.freeBytes)) free\(lost); \
            \(way), \(AdminText.duration(census.processorSeconds)) of processor time
            """
    }

    private static func row(_ row: HeapCensus.Row, bytes: (Int) -> String) -> [String] {
        let fill = row.usedBytes.flatMap { used in
            row.capacityBytes.flatMap { $0 > 0 ? "\(Text.number(Double(used) / Double($0) * 100)) %" : nil }
        }
        let owned = row.ownedBlocks == 0 ? "-" : bytes(row.ownedBytes)
        return [bytes(row.bytes), owned, "\(row.count)", fill ?? "-", printable(row.name)]
    }

    private static func signed(_ bytes: Int) -> String {
        ByteCount(bytes).description
    }

    /// Numbers to the right, and types of any length last.
    private static func table(_ rows: [[String]]) -> String {
        let all = [["bytes", "owned", "count", "filled", "type"]] + rows
        let widths = (0..<4).map { column in all.map { $0[column].count }.max() ?? 0 }
        let padded = all.map { row in zip(row, widths).map { Text.right($0, $1) } + row.suffix(1) }
        return Text.table(padded[0], Array(padded.dropFirst()))
    }
}
