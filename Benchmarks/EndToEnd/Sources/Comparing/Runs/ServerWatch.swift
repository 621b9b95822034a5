import Foundation

/// Watches a server from outside during a load: the resident set, the processor time, and the end.
struct ServerWatch {
    private let id: Int32
    private let began = Date()
    private var lastSample = Date.distantPast
    private var sum = 0.0
    private var samples = 0
    private(set) var peak = 0
    private(set) var goneAfter: Double?
    private let processorBefore: Double
    private(set) var processorSeconds = 0.0

    private static let interval = 0.2

    init(_ id: Int32) {
        self.id = id
        processorBefore = ProcessorTime.of(id) ?? 0
    }

    var mean: Double { samples == 0 ? 0 : sum / Double(samples) }

    /// Takes a sample if a fifth of a second has passed.
    mutating func poll() {
        let now = Date()
        guard goneAfter == nil, now.timeIntervalSince(lastSample) >= Self.interval else { return }
        lastSample = now
        guard let bytes = ResidentSet.bytes(of: id) else {
            goneAfter = now.timeIntervalSince(began)
            return
        }
        if let seconds = ProcessorTime.of(id) { processorSeconds = seconds - processorBefore }
        sum += Double(bytes)
        samples += 1
        peak = max(peak, bytes)
    }
}
