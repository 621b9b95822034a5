import Plimsoll

/// The story that a black box tells of the end of a process. A value.
package struct BoxStory: Sendable {
    /// The growth of unreclaimable memory that led to the last reading.
    package struct Rise: Sendable, Equatable {
        package var bytes: Int
        package var duration: Duration
        /// True if memory rose for a minute or more: a leak rather than a burst.
        package var isSlow: Bool { duration >= .seconds(60) }
    }

    /// The growth of one registered purgeable, or of all requests of one name.
    package struct Growth: Sendable, Equatable {
        package var name: String
        package var bytes: Int
        package var isRequest = false
    }

    package let contents: BoxContents
    package let verdict: BoxVerdict
    /// `nil` if memory did not rise.
    package let rise: Rise?
    /// Purgeables and requests that hold more than at the begin of the rise, most first.
    package let growths: [Growth]
    /// Part of the rise that no registered purgeable accounts for.
    package let unregistered: Int

    /// Reads the story from a record.
    ///
    /// - Parameter isLiving: true if the process still writes the record.
    package init(_ contents: BoxContents, isLiving: Bool = false) {
        self.contents = contents
        verdict = isLiving ? BoxVerdict(kind: .clean, sentence: "none yet: the process runs") : BoxVerdict(contents)
        let start = Self.start(of: contents.samples)
        rise = contents.samples.last.flatMap { last in
            start.flatMap { start in
                last.pinned > start.pinned ? Rise(bytes: last.pinned - start.pinned, duration: last.at - start.at) : nil
            }
        }
        growths = start.map { Self.growths(contents.tables, since: $0.at) } ?? []
        let registered = start.flatMap { start in
            contents.samples.last.map { max(0, $0.charged - start.charged) }
        }
        let named = growths.reduce(0) { $0 + $1.bytes }
        unregistered = max(0, (rise?.bytes ?? 0) - max(named, registered ?? 0))
    }

    /// Returns the reading at which the last rise began: the last one that is hardly above the lowest, which is looked for
    /// up to the last time that memory stood nearly as high as at the end. A release in between makes a dip, and no new
    /// rise.
    private static func start(of samples: [BoxContents.Sample]) -> BoxContents.Sample? {
        guard let last = samples.last else { return nil }
        var lowest = last
        for sample in samples.reversed() {
            if sample.pinned < lowest.pinned {
                lowest = sample
            } else if sample.pinned - lowest.pinned > max(last.pinned / 16, (last.pinned - lowest.pinned) / 4 * 3) {
                break
            }
        }
        // The usual movement of a calm service is no rise.
        let slack = (last.pinned - lowest.pinned) / 32
        return samples.last { $0.at >= lowest.at && $0.pinned <= lowest.pinned + slack }
    }

    private static func growths(_ tables: [BoxContents.Table], since start: Duration) -> [Growth] {
        guard let last = tables.last else { return [] }
        // A purgeable that the first table lacks held nothing, or too little to be listed.
        let first = tables.last { $0.at <= start } ?? tables[0]
        let before = sizes(first), after = sizes(last)
        return after.map {
            Growth(name: $0.key.name, bytes: $0.value - before[$0.key, default: 0], isRequest: $0.key.isRequest)
        }
        .filter { $0.bytes > 0 }.sorted { ($1.bytes, $0.name) < ($0.bytes, $1.name) }
    }

    private struct Holder: Hashable {
        var name: String
        var isRequest: Bool
    }

    /// The bytes by name on the heap; volatile memory can be reclaimed and is no part of a rise.
    private static func sizes(_ table: BoxContents.Table) -> [Holder: Int] {
        table.rows.filter { $0.kind != .volatile }.reduce(into: [:]) {
            $0[Holder(name: $1.name, isRequest: $1.kind == .request), default: 0] += $1.bytes
        }
    }
}

// MARK: - Text

extension BoxStory {
    /// Returns the story as lines of text, with `describe` for times of day.
    package func lines(_ describe: (_ sinceEpoch: Duration) -> String) -> [String] {
        let writer = contents.writer
        var lines = [
            "\(writer.program), process \(writer.process), Plimsoll \(writer.version), started \(describe(writer.started))"
        ]
        guard let last = contents.samples.last else { return lines + [row("end", verdict.sentence)] }
        lines.append(row("last", "read \(describe(last.wall)), after \((last.wall - writer.started).brief)"))
        lines.append(row("end", verdict.sentence))
        lines.append(row("memory", memory(last)))
        lines.append(row("speed", speed))
        lines.append(row("grew", grew))
        if let census = contents.census { lines.append(row("heap", heap(census, last))) }
        lines.append(row("released", released))
        lines.append(row("not done", notDone))
        lines.append(row("tasks", tasks))
        if verdict.kind != .clean { lines.append(row("advice", advice(last))) }
        return lines + drawing
    }

    private func row(_ name: String, _ text: String) -> String {
        name + String(repeating: " ", count: max(1, 10 - name.count)) + text
    }

    private func memory(_ last: BoxContents.Sample) -> String {
        var text = "\(ByteCount(last.usage)) used"
        if let limit = last.limit { text += " of \(ByteCount(limit))" }
        if let available = last.available { text += ", \(ByteCount(available)) available" }
        return text
            + ", resident \(ByteCount(last.resident)), caches \(ByteCount(last.charged)) and \(ByteCount(last.volatile)) volatile;"
            + " level \(last.level)"
    }

    private var speed: String {
        guard let rise else { return "unreclaimable memory did not rise" }
        let seconds = max(rise.duration.inSeconds, 0.001)
        return "unreclaimable memory rose by \(ByteCount(rise.bytes)) in \(rise.duration.brief)"
            + " (\(ByteCount(Int(Double(rise.bytes) / seconds)))/s)"
    }

    private var grew: String {
        guard rise != nil else { return "-" }
        let names = growths.prefix(3).map {
            "\($0.isRequest ? "requests " : "")\"\($0.name)\" by \(ByteCount($0.bytes))"
        }
        return (names + ["what is registered nowhere by \(ByteCount(unregistered))"]).joined(separator: ", ")
    }

    private func heap(_ census: RecordedCensus, _ last: BoxContents.Sample) -> String {
        let types = census.rows.prefix(3).map { "\(ByteCount($0.bytes)) in \($0.count) of \($0.name)" }
        return "counted \(max(.zero, last.at - census.at).brief) before: \(types.joined(separator: ", "))"
    }

    private var released: String {
        let releases = contents.reports.filter {
            !$0.isCancelling && $0.asked + $0.released + $0.releasedVolatile + $0.taken > 0
        }
        let cancelled = contents.reports.filter { $0.isCancelling && $0.outcome == .done }.map {
            "; cancelled \"\($0.text)\", which held \(ByteCount($0.asked))"
        }.suffix(3).joined()
        guard !releases.isEmpty else { return "nothing" + cancelled }
        let sum = releases.reduce((heap: 0, volatile: 0, taken: 0)) {
            ($0.heap + $1.released, $0.volatile + $1.releasedVolatile, $0.taken + $1.taken)
        }
        let count = "\(releases.count) action\(releases.count == 1 ? "" : "s")"
        return "\(ByteCount(sum.heap)) and \(ByteCount(sum.volatile)) volatile in \(count), which asked for"
            + " \(ByteCount(releases.map(\.asked).max() ?? 0)) at most; the kernel reclaimed \(ByteCount(sum.taken)) of volatile"
            + " memory" + cancelled
    }

    private var notDone: String {
        let names = [
            "warn", "release", "cancel largest request", "quiesce", "expire background tasks", "suspend", "terminate",
        ]
        var counts: [(text: String, count: Int)] = []
        for report in contents.reports where report.outcome != .done {
            let name = names.indices.contains(report.severity) ? names[report.severity] : "?"
            let text =
                switch report.outcome {
                case .refused: "\(name): \(report.text)"
                case .overran: "\(name): \"\(report.text)\" took too long"
                case .dryRun, .done: "\(name): dry run"
                }
            if let place = counts.firstIndex(where: { $0.text == text }) {
                counts[place].count += 1
            } else {
                counts.append((text, 1))
            }
        }
        guard !counts.isEmpty else { return "nothing was refused" }
        return counts.suffix(3).map { $0.count > 1 ? "\($0.text) (\($0.count) times)" : $0.text }.joined(
            separator: "; ")
    }

    private var tasks: String {
        let counts = contents.samples.map(\.tasks)
        return "\(counts.last ?? 0) ran at the end, \(counts.max() ?? 0) at most"
    }

    private func advice(_ last: BoxContents.Sample) -> String {
        if last.isDryRun { return "actions were only decided: switch the dry run off" }
        guard let limit = last.limit else { return "set a memory limit, from which all levels derive" }
        guard let rise else {
            return verdict.kind == .unknown
                ? "look for a crash report or a kill by hand; memory did not rise"
                : "memory was full without a rise: raise the limit, or hold less"
        }
        guard verdict.kind == .outOfMemory || rise.bytes > limit / 8 else {
            return "look for a crash report or a kill by hand; memory rose by an eighth of the limit or less"
        }
        var text: String
        if let first = growths.first, first.bytes > rise.bytes / 3, first.isRequest {
            text =
                "requests \"\(first.name)\" grew: give them a limit, or the ladder a rung that cancels the largest request"
        } else if let first = growths.first, first.bytes > rise.bytes / 3 {
            text = "\"\(first.name)\" grew although memory was short: give it a limit, or let it release what it holds"
        } else if unregistered > rise.bytes / 2 {
            text = "most of the growth is registered nowhere: bound it, or register what can be rebuilt"
        } else {
            text = "several purgeables grew at once: give them limits"
        }
        if rise.isSlow {
            // Bounded to some 300 years: a rise of a byte in years gives more than a duration can hold.
            let room = min(1e10, Double(limit) / (Double(rise.bytes) / rise.duration.inSeconds))
            text += "; a limit twice as large would last \(Duration.seconds(room).brief) longer"
        } else {
            text += "; a limit of \(ByteCount(limit + rise.bytes)) has room for such a burst"
        }
        return text
    }

    /// The last minute, one column a second: the share of the limit that cannot be reclaimed.
    private var drawing: [String] {
        guard let last = contents.samples.last, let limit = last.limit, limit > 0 else { return [] }
        let blocks = Array("▁▂▃▄▅▆▇█"), columns = 60
        var worst = [Int?](repeating: nil, count: columns)
        var levels = [PressureLevel?](repeating: nil, count: columns)
        for sample in contents.samples {
            let column = columns - 1 - Int((last.at - sample.at).inSeconds)
            guard (0..<columns).contains(column) else { continue }
            worst[column] = max(worst[column] ?? 0, sample.pinned)
            levels[column] = max(levels[column] ?? .normal, sample.level)
        }
        let bars = worst.map { bytes in
            bytes.map { blocks[min(blocks.count - 1, max(0, $0) * blocks.count / limit)] } ?? " "
        }
        let marks = levels.map { level -> Character in
            switch level {
            case nil: " "
            case .normal: "_"
            case .warning: "-"
            case .critical: "#"
            }
        }
        return [
            "",
            "the last minute: unreclaimable memory of \(ByteCount(limit)), and the level (_ normal, - warning, # critical)",
            String(bars), String(marks),
        ]
    }
}
