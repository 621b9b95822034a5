package import Plimsoll

/// The judgement of how the process of a black box ended, from its record. A value.
package struct BoxVerdict: Sendable, Equatable {
    package var kind: PreviousEnd
    /// One sentence with the evidence.
    package var sentence: String

    init(kind: PreviousEnd, sentence: String) { (self.kind, self.sentence) = (kind, sentence) }

    /// Growth that lasts is taken to have lasted for this time after the last reading.
    private static let horizon = 0.25

    /// Judges a record.
    ///
    /// The kernel's count of kills is certain. Without that, memory that was used up within a quarter of a second at the
    /// last growth, or to less than a sixty-fourth of the limit, is likely to be the cause. Everything else is unknown: one
    /// allocation may take more than was free at the last reading.
    package init(_ contents: BoxContents) {
        if let end = contents.end {
            kind = .clean
            sentence =
                switch end {
                case .shutdown: "ended in good order"
                case .pressure: "saved its state and ended itself, because memory stayed short (rung terminate)"
                }
            return
        }
        guard let last = contents.samples.last else {
            (kind, sentence) = (.unknown, "ended without notice before its first reading")
            return
        }
        if let before = last.kills, let after = contents.killsAtNextStart, after > before {
            (kind, sentence) = (
                .outOfMemory,
                "killed for memory: the kernel's count of kills in its group rose from \(before) to \(after)"
            )
            return
        }
        guard let limit = last.limit, let available = last.available else {
            (kind, sentence) = (.unknown, "killed or crashed; it had no memory limit, so memory is an unlikely cause")
            return
        }
        let left = "\(ByteCount(available)) of \(ByteCount(limit)) were available at the last reading"
        if Double(available) <= max(Double(limit) / 64, Double(last.growth) * Self.horizon) {
            let growth = last.growth > 0 ? ", at a growth of \(ByteCount(last.growth))/s" : ""
            (kind, sentence) = (.outOfMemory, "likely killed for memory: \(left)\(growth)")
        } else {
            (kind, sentence) = (
                .unknown,
                "killed or crashed, for an unknown reason; \(left), so memory is the cause only if more was taken at once"
            )
        }
    }
}
