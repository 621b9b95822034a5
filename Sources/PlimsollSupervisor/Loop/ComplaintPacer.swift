/// Bounds how many lines are told of a unit: the first few of each kind, and then the number of the rest once in a while. What a unit's processes do must
/// neither fill a disk nor bury what matters.
struct ComplaintPacer {
    /// Lines of a kind in a window.
    static let burst = 5
    static let window = Duration.seconds(30)
    /// Kinds at once; any more count as one.
    static let mostKinds = 1024

    /// A unit, and a line of its without the numbers in it.
    private struct Kind: Hashable {
        let unit: String
        let text: String
    }

    private struct Tally {
        let since: Duration
        var told = 0
        var withheld = 0
        var last = ""
    }

    private var tallies: [Kind: Tally] = [:]

    /// The end of the first window in which lines were withheld; `nil` if none were.
    private(set) var nextDue: Duration?

    /// Whether to tell `line` of `unit` now; if not, it is counted.
    mutating func admits(_ line: String, of unit: String, at now: Duration) -> Bool {
        var kind = Kind(unit: unit, text: String(line.prefix(200).filter { !$0.isNumber }))
        if tallies[kind] == nil, tallies.count >= Self.mostKinds { kind = Kind(unit: "", text: "") }
        if let tally = tallies[kind], tally.withheld == 0, now - tally.since >= Self.window { tallies[kind] = nil }
        var tally = tallies[kind] ?? Tally(since: now)
        defer { tallies[kind] = tally }
        if tally.told < Self.burst {
            tally.told += 1
            return true
        }
        tally.withheld += 1
        tally.last = line
        let due = tally.since + Self.window
        nextDue = min(nextDue ?? due, due)
        return false
    }

    /// What is to be told of lines that were withheld in windows that have ended; of all with `isOver`.
    mutating func overdue(at now: Duration, isOver: Bool = false) -> [String] {
        guard isOver || nextDue.map({ now >= $0 }) ?? false else { return [] }
        var lines: [String] = []
        nextDue = nil
        for (kind, tally) in tallies {
            let due = tally.since + Self.window
            if isOver || now >= due {
                tallies[kind] = nil
                let unit = kind.unit.isEmpty ? "units" : kind.unit
                if tally.withheld > 0 {
                    lines.append("\(unit): \(tally.withheld) more lines like this were not told: \(tally.last)")
                }
            } else if tally.withheld > 0 {
                nextDue = min(nextDue ?? due, due)
            }
        }
        return lines
    }
}
