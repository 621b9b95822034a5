import Foundation

/// Processor time by the kernel's count, in seconds.
enum ProcessorTime {
    /// USER_HZ, which is 100 on every architecture that Swift has.
    private static let ticks = 100.0

    /// Returns the time used by the process `id` so far; `nil` once the process is gone.
    static func of(_ id: Int32) -> Double? {
        guard let text = try? String(contentsOfFile: "/proc/\(id)/stat", encoding: .utf8),
            let end = text.lastIndex(of: ")")
        else { return nil }
        let fields = text[text.index(after: end)...].split(separator: " ")
        guard fields.count > 12, let user = Double(fields[11]), let system = Double(fields[12]) else { return nil }
        return (user + system) / ticks
    }

    /// Time for which all processors together have been busy so far, including steal time; `nil` where the kernel gives
    /// no count.
    static var busy: Double? {
        guard let line = (try? String(contentsOfFile: "/proc/stat", encoding: .utf8))?.split(separator: "\n").first
        else { return nil }
        // user nice system idle iowait irq softirq steal; guests' time is part of user's.
        let fields = line.split(separator: " ").dropFirst().prefix(8).compactMap { Double($0) }
        guard fields.count == 8 else { return nil }
        return (fields.reduce(0, +) - fields[3] - fields[4]) / ticks
    }
}
