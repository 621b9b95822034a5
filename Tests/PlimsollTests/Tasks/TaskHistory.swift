import Plimsoll

/// The events of one registry's background tasks, with times, and the rules that the registry must obey.
///
/// A call takes effect at some instant between its begin and its end. A rule is broken if no choice of instants obeys
/// it.
struct TaskHistory: Sendable {
    typealias Span = ClosedRange<Int64>

    struct Token: Sendable {
        var begin: Span
        var refusal: BackgroundTaskRefusal.Cause?
        /// Times of calls of the expiration handler.
        var asked: [Int64] = []
        var ends: [Span] = []
        /// Answers of `isActive`.
        var reads: [(span: Span, isActive: Bool)] = []
    }

    var tokens: [Token] = []
    /// The expirations of all tasks. Each lasts until all tasks that were asked have ended.
    var sweeps: [Span] = []
    var closes: [Span] = []

    /// Descriptions of the broken rules.
    var faults: [String] {
        tokens.enumerated().flatMap { number, token in faults(of: token).map { "token \(number): \($0)" } }
    }

    private func faults(of token: Token) -> [String] {
        var faults: [String] = []
        func check(_ holds: Bool, _ fault: String) { if !holds { faults.append(fault) } }
        /// Returns true if the token has certainly ended before `time`.
        func hasEnded(before time: Int64) -> Bool {
            token.ends.contains { $0.upperBound < time }
                || sweeps.contains { token.begin.upperBound < $0.lowerBound && $0.upperBound < time }
        }
        switch token.refusal {
        case nil:
            check(!closes.contains { $0.upperBound < token.begin.lowerBound }, "it began after the shutdown")
        case .shutdown:
            check(closes.contains { $0.lowerBound < token.begin.upperBound }, "it was refused before any shutdown")
        case .expiring:
            check(sweeps.contains { $0.overlaps(token.begin) }, "it was refused as expiring, and nothing expired")
        default: faults.append("it was refused for no reason")
        }
        check(token.asked.count <= 1, "its handler was called \(token.asked.count) times")
        check(token.asked.isEmpty || token.refusal == nil, "it was refused, and its handler called")
        for asked in token.asked {
            let isPossible = sweeps.contains { sweep in
                sweep.lowerBound < asked && token.begin.lowerBound < sweep.upperBound && !hasEnded(before: sweep.lowerBound)
            }
            check(isPossible, "its handler was called, and no expiration can have asked it")
        }
        for read in token.reads {
            if read.isActive {
                check(token.refusal == nil, "it was refused, and is active")
                check(!hasEnded(before: read.span.lowerBound), "it is active after its end")
            } else if token.refusal == nil {
                let mayHaveEnded =
                    token.ends.contains { $0.lowerBound < read.span.upperBound }
                    || sweeps.contains { $0.lowerBound < read.span.upperBound }
                check(mayHaveEnded, "it is not active, and nothing has ended it")
            }
        }
        return faults
    }
}
