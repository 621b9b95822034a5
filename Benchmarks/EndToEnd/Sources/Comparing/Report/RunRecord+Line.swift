import Foundation

extension RunRecord {
    /// The run as a line for progress output.
    public var line: String {
        var parts = ["\(limitBytes >> 20) MiB \(load) \(variant) run \(run):"]
        guard let result else { return parts[0] + " " + (problem ?? "nothing came of it") }
        let picture = result[.picture], session = result[.session]
        parts.append("\(Figures.text(goodPerSecond, 0)) good/s")
        if wasKilled { parts.append("KILLED after \(Figures.text(goneAfterSeconds ?? result.goneAtSeconds, 1)) s") }
        parts.append(
            "pictures \(picture.good) of \(picture.due), hits \(Figures.text(picture.hitRatio.map { $0 * 100 }, 1)) %")
        parts.append("p50 \(Figures.text(picture.p50, 1)) p99 \(Figures.text(picture.p99, 1)) ms")
        parts.append("sessions hits \(Figures.text(session.hitRatio.map { $0 * 100 }, 1)) %")
        parts.append("uploads \(result[.upload].good) of \(result[.upload].due)")
        parts.append("refused \(result.routes.values.reduce(0) { $0 + $1.refused })")
        parts.append("late \(result.routes.values.reduce(0) { $0 + $1.late })")
        parts.append("resident \(Figures.text(meanResidentBytes / 1048576, 0))/\(peakResidentBytes >> 20) MiB")
        parts.append("processors \(Figures.text(processors, 2)), neighbours \(Figures.text(neighbours, 2))")
        if let held = server?.heldSeconds { parts.append("held \(Figures.text(held, 1)) s") }
        if let problem { parts.append(problem) }
        return parts.joined(separator: " ")
    }
}

/// Numbers as text.
public enum Figures {
    /// A number with so many decimals; a dash for none.
    public static func text(_ value: Double?, _ decimals: Int) -> String {
        value.map { String(format: "%.\(decimals)f", $0) } ?? "-"
    }
}
