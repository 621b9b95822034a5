import Plimsoll
import PlimsollDemos
import PlimsollLifecycle
import PlimsollService

/// A frame of `top`: exactly `rows` lines, none wider than the terminal. Pure, so that frames can be compared.
struct TopView {
    let columns: Int
    let rows: Int

    /// Creates a view of at least 20 columns and 4 rows. The layout needs that many; the terminal cuts off the rest.
    init(columns: Int, rows: Int) { (self.columns, self.rows) = (max(20, columns), max(4, rows)) }

    func frame(_ answer: AdminAnswer) -> [String] {
        guard let status = answer.status else { return fitted([]) }
        var lines = [title(answer, status)] + memory(status)
        // The parts share the remaining rows. Each gets the rows that it needs if others leave enough, and at least
        // an even share.
        let gap = rows < 16 ? [] : [""]
        let parts =
            [("CACHES", caches(status))] + requests(status)
            + [("TASKS", tasks(status)), ("LAST ACTIONS", actions(status))]
        let room = share(parts.map { $0.1.count }, of: rows - lines.count - (gap.count + 1) * parts.count)
        for ((name, content), room) in zip(parts, room) {
            let left = content.count - room
            lines += gap + [left > 0 ? "\(name)  (\(left) more)" : name] + content.prefix(room)
        }
        return fitted(lines)
    }

    /// Widths of the two columns that caches and tasks have in common. The other columns take 46.
    private var nameWidth: Int { max(8, min(28, (columns - 46) / 2)) }
    private var barWidth: Int { max(4, min(40, columns - 46 - nameWidth)) }

    // MARK: Parts

    private func title(_ answer: AdminAnswer, _ status: ManagerStatus) -> String {
        let name = "\(answer.program ?? "") (\(answer.process ?? 0))"
        let level =
            status.level + (status.memory.map { $0.evidence == "none" ? "" : " (\($0.evidence))" } ?? "")
            + AdminText.held(status)
            + (status.memory.map { $0.shortfallBytes > 0 ? ", \(ByteCount($0.shortfallBytes)) short" : "" } ?? "")
            + (status.isDryRun ? ", dry run" : "")
        let left = "\(name)  \(status.lifecycle.state)  \(level)"
        return left.count + 9 <= columns ? Text.left(left, columns - 7) + "q quits" : left
    }

    private func memory(_ status: ManagerStatus) -> [String] {
        guard let memory = status.memory else { return ["memory     not read yet: the manager does not run"] }
        var lines: [String] = []
        if let limit = memory.limitBytes, limit > 0 {
            let share = { (bytes: Int) in Double(bytes) / Double(limit) }
            let marks: [(Double, Character)] = [(memory.warningLineBytes, "w"), (memory.criticalLineBytes, "c")]
                .compactMap { line, mark in
                    line.map { (share($0), mark) }
                }
            let text = "  \(ByteCount(memory.usageBytes)) of \(ByteCount(limit))"
            let free = memory.availableBytes.map { ByteCount($0) } ?? ByteCount(limit) - ByteCount(memory.usageBytes)
            let fixed = ByteCount(limit) - free
            lines.append(
                "usage      ["
                    + Self.bar(
                        share(fixed.bytes), share(memory.usageBytes), width: max(4, columns - 13 - text.count),
                        marks: marks) + "]"
                    + text
            )
        } else {
            lines.append("usage      \(ByteCount(memory.usageBytes)), no limit known")
        }
        let available = memory.availableBytes.map { "\(ByteCount($0))" } ?? "unknown"
        lines.append(
            "available  \(available)   resident \(ByteCount(memory.residentBytes))   heap caches \(ByteCount(memory.chargedBytes))   volatile \(ByteCount(memory.volatileBytes))"
        )
        let growth = AdminText.growth(ByteCount(memory.growthBytesPerSecond), memory.timeLeftSeconds)
        lines.append("growth     \(growth)   stalled \(Text.number(memory.stallShare * 100)) %")
        return lines
    }

    private func caches(_ status: ManagerStatus) -> [String] {
        // Saturating sum: the numbers come from another process.
        let all = max(1, status.holders.reduce(ByteCount.zero) { $0 + ByteCount($1.heldBytes) }.bytes)
        return status.holders.sorted { $0.heldBytes > $1.heldBytes }.map { holder -> String in
            let name = (holder.group.isEmpty ? "" : holder.group + "/") + holder.name
            let limit =
                holder.limitBytes.map { " of " + Text.left("\(ByteCount($0))", 8) } ?? String(repeating: " ", count: 12)
            var cells = [Text.left(Self.short(name, nameWidth), nameWidth)]
            cells.append("[" + Bar.draw(Double(holder.heldBytes) / Double(all), width: barWidth) + "]")
            cells.append(Text.right("\(ByteCount(holder.heldBytes))", 8) + limit)
            cells.append(Text.right(holder.cache.map { AdminText.ratio($0) } ?? "-", 6) + " hits")
            cells.append(holder.rebuildCost)
            return cells.joined(separator: " ")
        }
    }

    /// The requests that hold most; no part if no request has a budget.
    private func requests(_ status: ManagerStatus) -> [(String, [String])] {
        guard let requests = status.requests, requests.running > 0 else { return [] }
        let most = max(1, requests.largest.first?.heldBytes ?? 0)
        let lines = requests.largest.map { request -> String in
            let limit =
                request.limitBytes.map { " of " + Text.left("\(ByteCount($0))", 8) }
                ?? String(repeating: " ", count: 12)
            return [
                Text.left(Self.short(request.name, nameWidth), nameWidth),
                "[" + Bar.draw(Double(request.heldBytes) / Double(most), width: barWidth) + "]",
                Text.right("\(ByteCount(request.heldBytes))", 8) + limit,
                request.isCancelled ? "cancelled" : "peak \(ByteCount(request.peakBytes))",
            ]
            .joined(separator: " ")
        }
        return [("REQUESTS", lines)]
    }

    private func tasks(_ status: ManagerStatus) -> [String] {
        guard !status.tasks.oldest.isEmpty else { return ["none"] }
        return status.tasks.oldest.map { task -> String in
            let share = task.progress.map { Double($0.completed) / Double($0.total) }
            let bar =
                share.map { "[" + Bar.draw($0, width: barWidth) + "]" } ?? String(repeating: " ", count: barWidth + 2)
            return [
                Text.left(Self.short(task.name, nameWidth), nameWidth), bar,
                Text.right(AdminText.age(task.age.inSeconds), 8),
                " \(AdminText.progress(task))\(task.isExpiring ? "  asked to end" : "")",
            ]
            .joined(separator: " ")
        }
    }

    private func actions(_ status: ManagerStatus) -> [String] {
        status.actions.isEmpty ? ["none"] : status.actions.reversed().map { AdminText.action($0, at: status.atSeconds) }
    }

    // MARK: Fitting

    /// Returns a bar with marks. The first part cannot be reclaimed; the rest up to `used` can.
    static func bar(_ fixed: Double, _ used: Double, width: Int, marks: [(at: Double, character: Character)]) -> String
    {
        let solid = Bar.draw(fixed, width: width), all = Bar.draw(used, width: width, marks: marks)
        var cells = zip(solid, all).map { $0 == "█" ? $0 : $1 == "█" ? "▒" : $1 }
        // A mark stays visible over reclaimable memory, because a level line counts only memory that cannot be
        // reclaimed. A line that was passed is a capital letter.
        for mark in marks where (0...1).contains(mark.at) {
            let cell = min(width - 1, Int(mark.at * Double(width)))
            if cells[cell] != "·" {
                cells[cell] = cells[cell] == "█" ? Character(mark.character.uppercased()) : mark.character
            }
        }
        return String(cells)
    }

    private static func short(_ text: String, _ width: Int) -> String {
        text.count <= width ? text : text.prefix(width - 1) + "…"
    }

    /// Divides `room` lines: small needs are met, the others get equal parts of the rest.
    private func share(_ needs: [Int], of room: Int) -> [Int] {
        var given = needs.map { _ in 0 }, left = max(0, room)
        while left > 0, zip(needs, given).contains(where: { $0 > $1 }) {
            for index in needs.indices where left > 0 && given[index] < needs[index] {
                given[index] += 1
                left -= 1
            }
        }
        return given
    }

    private func fitted(_ lines: [String]) -> [String] {
        (0..<rows).map { row in row < lines.count ? String(Self.narrow(lines[row]).prefix(columns)) : "" }
    }

    /// Replaces characters that take two columns or none: in a service's name, they would shift the rest of the line.
    private static func narrow(_ text: String) -> String {
        String(
            String.UnicodeScalarView(
                printable(text).unicodeScalars.map { scalar in
                    let isNarrow =
                        scalar.value < 0x300 || (0x370..<0x483).contains(scalar.value)
                        || (0x2010..<0x2027).contains(scalar.value)
                        || (0x2500..<0x25a0).contains(scalar.value) || scalar == "\u{FFFD}"
                    return isNarrow && scalar.value != 0xad ? scalar : "?"
                }))
    }
}
