import Foundation

/// Looks at a server from outside during a load: what is resident, and when it is gone.
struct ServerWatch {
    private let id: Int32
    private let began = Date()
    private var lastLook = Date.distantPast
    private var sum = 0.0
    private var looks = 0
    private(set) var peak = 0
    private(set) var goneAfter: Double?

    private static let interval = 0.2

    init(_ id: Int32) { self.id = id }

    var mean: Double { looks == 0 ? 0 : sum / Double(looks) }

    /// Looks if a fifth of a second has passed.
    mutating func look() {
        let now = Date()
        guard goneAfter == nil, now.timeIntervalSince(lastLook) >= Self.interval else { return }
        lastLook = now
        guard let bytes = ResidentSet.bytes(of: id) else {
            goneAfter = now.timeIntervalSince(began)
            return
        }
        sum += Double(bytes)
        looks += 1
        peak = max(peak, bytes)
    }

    /// Processor time the process has taken so far, in seconds; `nil` once it is gone.
    var processorSeconds: Double? {
        guard let text = try? String(contentsOfFile: "/proc/\(id)/stat", encoding: .utf8), let end = text.lastIndex(of: ")") else { return nil }
        let fields = text[text.index(after: end)...].split(separator: " ")
        guard fields.count > 12, let user = Double(fields[11]), let system = Double(fields[12]) else { return nil }
        // USER_HZ, which is 100 on every architecture Swift has.
        return (user + system) / 100
    }
}
