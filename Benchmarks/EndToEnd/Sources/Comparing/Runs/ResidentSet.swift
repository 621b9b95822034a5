import Foundation

/// Resident bytes of processes, as counted by the kernel.
public enum ResidentSet {
    /// Returns the resident bytes of the process `id`; `nil` once the process is gone.
    public static func bytes(of id: Int32) -> Int? {
        guard let text = try? String(contentsOfFile: "/proc/\(id)/statm", encoding: .utf8) else { return nil }
        let fields = text.split(separator: " ")
        // A zombie has no pages.
        guard fields.count > 1, let pages = Int(fields[1]), pages > 0 else { return nil }
        return pages * 4096
    }

    /// The largest resident set of this process so far.
    public static var peak: Int {
        guard let text = try? String(contentsOfFile: "/proc/self/status", encoding: .utf8),
            let line = text.split(separator: "\n").first(where: { $0.hasPrefix("VmHWM:") }),
            let kibibytes = line.split(whereSeparator: { $0 == " " || $0 == "\t" }).dropFirst().first.flatMap({
                Int($0)
            })
        else { return 0 }
        return kibibytes << 10
    }
}
